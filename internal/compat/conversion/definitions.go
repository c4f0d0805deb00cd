package conversion

import (
	"bytes"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/compat/generations"
)

// hub is the version that is stored.
var hub = v1.GroupVersion.Version

// served makes a definition serve v1beta1 beside v1, and store v1. It leaves a v1 alone that the definition has already: the
// chart of the definitions owns it.
func served(crd *apiextensionsv1.CustomResourceDefinition, v1, older apiextensionsv1.CustomResourceDefinitionVersion,
	call apiextensionsv1.WebhookClientConfig) {
	versions := []apiextensionsv1.CustomResourceDefinitionVersion{v1}
	for _, v := range crd.Spec.Versions {
		switch v.Name {
		case hub:
			versions[0] = v
		case older.Name:
		default:
			v.Storage = false
			versions = append(versions, v)
		}
	}
	versions[0].Served, versions[0].Storage = true, true
	crd.Spec.Versions = append(versions, older)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: &call, ConversionReviewVersions: []string{hub}},
	}
}

// dropped makes a definition know v1 only. It must not be done while something may be stored as v1beta1.
func dropped(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions,
		func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == generations.V1Beta1 })
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
}

// has reports whether a definition has a version.
func has(crd *apiextensionsv1.CustomResourceDefinition, version string) bool {
	return slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
}

// storesV1 reports whether a definition stores objects as v1.
func storesV1(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == hub && v.Storage
	})
}

// stale reports whether some objects may still be stored in another version than v1.
func stale(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.StoredVersions, func(v string) bool { return v != hub })
}

// trusts reports whether a definition trusts a certificate.
func trusts(crd *apiextensionsv1.CustomResourceDefinition, cert []byte) bool {
	c := crd.Spec.Conversion
	return c != nil && c.Webhook != nil && c.Webhook.ClientConfig != nil && bytes.Contains(c.Webhook.ClientConfig.CABundle, cert)
}
