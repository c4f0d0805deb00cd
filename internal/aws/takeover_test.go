package aws

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// Machines that other Karpenters launched are taken over with their claims: they are listed, so that nothing leaks, they drift by nothing, and
// they can be stopped. Those of Provisioners have no claims and none of our tags, and are never touched.
func TestMachinesOfOlderKarpenters(t *testing.T) {
	ours := []string{awsv1.TagNodePool, awsv1.TagNodeClaim, awsv1.TagNodeClass, awsv1.TagClusterName, awsv1.TagName, awsv1.AnnotationInstanceTagged}
	for name, tc := range map[string]struct {
		tags        map[string]string
		annotations map[string]string
		taken       bool
	}{
		"0.26": {map[string]string{"karpenter.sh/provisioner-name": "default", "Name": "karpenter.sh/provisioner-name/default"}, nil, false},
		"0.33": {
			map[string]string{awsv1.TagNodePool: "default", awsv1.TagNodeClass: "default", "karpenter.sh/managed-by": "demo", "Name": "ip-10-0-0-1"},
			map[string]string{v1.NodePoolHashAnnotationKey: "1", v1.NodePoolHashVersionAnnotationKey: "v1", awsv1.AnnotationNodeClassHash: "1", awsv1.AnnotationNodeClassHashVersion: "v1"}, true,
		},
		"1.0": {
			map[string]string{awsv1.TagNodePool: "default", awsv1.TagNodeClass: "default", awsv1.TagNodeClaim: "a", awsv1.TagClusterName: "demo", "Name": "ip-10-0-0-1"},
			map[string]string{awsv1.AnnotationNodeClassHash: "1", awsv1.AnnotationNodeClassHashVersion: "v3", v1.KubeletCompatibilityAnnotationKey: `{"maxPods":30}`, awsv1.AnnotationClusterNameTagged: "true"}, true,
		},
		"1.14": {
			map[string]string{awsv1.TagNodePool: "default", awsv1.TagNodeClass: "default", awsv1.TagNodeClaim: "a", awsv1.TagClusterName: "demo"},
			map[string]string{awsv1.AnnotationNodeClassHash: "1", awsv1.AnnotationNodeClassHashVersion: "v4"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{Identities: map[string]awsmodel.Identity{}}, nil, func(t *testing.T, w *world) {
				claim, m := w.create(t, newClaim("a"))
				people, id := ec2.NewFromConfig(w.cloud.AWSConfig()), instanceID(m.ProviderID)
				w.provider.machines.launches.stopped(m.ProviderID) // launched by another process
				time.Sleep(time.Minute)
				var gone []ec2types.Tag
				for _, key := range slices.Compact(slices.Sorted(slices.Values(ours))) {
					gone = append(gone, ec2types.Tag{Key: aws.String(key)})
				}
				_, err := people.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{id}, Tags: gone})
				check(t, err)
				_, err = people.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id}, Tags: ec2api.Tags(tc.tags)})
				check(t, err)
				claim = w.claim(t, claim.Name)
				if !tc.taken {
					check(t, w.kube.Delete(t.Context(), claim))
				} else {
					claim.Annotations = maps.Clone(tc.annotations)
					check(t, w.kube.Update(t.Context(), claim))
				}
				time.Sleep(5 * time.Minute)

				listed, err := w.provider.List(t.Context())
				check(t, err)
				if got := len(listed) == 1; got != tc.taken {
					t.Errorf("listed = %v, want %v; tags are %v", got, tc.taken, w.machineTags(t, m.ProviderID))
				}
				if tc.taken {
					reason, err := w.provider.Drifted(t.Context(), w.claim(t, "a"))
					if err != nil || reason != "" {
						t.Errorf("drift = %q, %v", reason, err)
					}
					if tags := w.machineTags(t, m.ProviderID); tags[awsv1.TagNodePool] != "default" || tags[awsv1.TagClusterName] != "demo" || tags[awsv1.TagNodeClaim] != "a" {
						t.Errorf("another Karpenter would not find the machine by its tags: %v", tags)
					}
				}
				if err := w.provider.Terminate(t.Context(), m.ProviderID); errors.Is(err, cloud.ErrNotFound) == tc.taken {
					t.Errorf("Terminate = %v", err)
				}
				time.Sleep(time.Minute)
				if running := w.cloud.Machines()[0].State == "running"; running == tc.taken {
					t.Errorf("it runs: %v", running)
				}
			})
		})
	}
}

// Machines of other clusters bear the same tags.
func TestWhoseProvisionersAMachineIs(t *testing.T) {
	for name, tc := range map[string]struct {
		tags map[string]string
		want string
	}{
		"of 0.26":                      {map[string]string{awsv1.TagProvisioner: "web", awsv1.TagClusterPrefix + "demo": "owned"}, "web"},
		"of 0.31":                      {map[string]string{awsv1.TagProvisioner: "web", awsv1.TagClusterPrefix + "demo": "owned", awsv1.TagManagedBy: "demo"}, "web"},
		"of another cluster":           {map[string]string{awsv1.TagProvisioner: "web", awsv1.TagClusterPrefix + "other": "owned"}, ""},
		"of another cluster's 0.31":    {map[string]string{awsv1.TagProvisioner: "web", awsv1.TagClusterPrefix + "demo": "owned", awsv1.TagManagedBy: "other"}, ""},
		"that another cluster adopted": {map[string]string{awsv1.TagProvisioner: "web", awsv1.TagClusterPrefix + "demo": "owned", awsv1.TagClusterName: "other"}, ""},
		"that the cluster only shares": {map[string]string{awsv1.TagProvisioner: "web", awsv1.TagClusterPrefix + "demo": "shared"}, ""},
		"that somebody has disowned":   {map[string]string{awsv1.TagClusterPrefix + "demo": "owned"}, ""},
	} {
		p := &machines{env: &environment{settings: Settings{ClusterName: "demo"}}}
		if got := p.provisioner(tc.tags); got != tc.want {
			t.Errorf("%s: provisioner = %q, want %q", name, got, tc.want)
		}
	}
}

// What is not adopted is not tagged either.
func TestWhatIsNotAdopted(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		_, m := w.create(t, newClaim("a"))
		w.provider.machines.launches.stopped(m.ProviderID) // launched by another process
		w.bequeath(t, m.ProviderID, "web")
		poolless := newClaim("b")
		delete(poolless.Labels, v1.NodePoolLabelKey)
		refused := func(what string, claim *v1.NodeClaim, providerID string) {
			t.Helper()
			if _, err := w.provider.Adopt(t.Context(), claim, providerID); !errors.Is(err, cloud.ErrNotFound) {
				t.Errorf("%s: Adopt = %v, want ErrNotFound", what, err)
			}
		}
		refused("no machine of EC2", newClaim("b"), "kind://a")
		refused("a claim without pool", poolless, m.ProviderID)
		people := ec2.NewFromConfig(w.cloud.AWSConfig())
		_, err := people.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{instanceID(m.ProviderID)}, Tags: ec2api.Tags(map[string]string{awsv1.TagManagedBy: "other"})})
		check(t, err)
		time.Sleep(time.Minute)
		refused("a machine of another cluster", newClaim("b"), m.ProviderID)
		if found, err := w.provider.Inherited(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("Inherited = %v, %v, want no machine of another cluster", found, err)
		}
		if tags := w.machineTags(t, m.ProviderID); tags[awsv1.TagNodePool] != "" || tags[awsv1.TagNodeClaim] != "" {
			t.Errorf("the machine has the tags %v", tags)
		}
		_, err = people.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{instanceID(m.ProviderID)}})
		check(t, err)
		time.Sleep(10 * time.Minute)
		refused("a machine that is gone", newClaim("b"), m.ProviderID)
	})
}
