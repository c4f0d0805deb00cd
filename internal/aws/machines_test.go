package aws

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// Garbage collection stops what is listed and has no claim.
func TestMachinesOfOthersAreNotListed(t *testing.T) {
	anybody := map[string]awsmodel.Identity{} // IAM would not save a machine if we tried to stop it
	for name, tc := range map[string]struct {
		add  map[string]string
		take string
		want bool // listed, and stopped when asked
	}{
		"a machine of ours":                {nil, "", true},
		"one of another cluster":           {map[string]string{awsv1.TagClusterName: "other"}, "", false},
		"one from which our tag was taken": {nil, awsv1.TagNodePool, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{Identities: anybody}, nil, func(t *testing.T, w *world) {
				_, m := w.create(t, newClaim("a"))
				people, id := ec2.NewFromConfig(w.cloud.AWSConfig()), instanceID(m.ProviderID)
				if tc.add != nil {
					_, err := people.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id}, Tags: ec2api.Tags(tc.add)})
					check(t, err)
				}
				if tc.take != "" {
					_, err := people.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{id}, Tags: []ec2types.Tag{{Key: aws.String(tc.take)}}})
					check(t, err)
				}
				time.Sleep(2 * invisible)
				listed, err := w.provider.List(t.Context())
				check(t, err)
				if got := len(listed) == 1; got != tc.want {
					t.Errorf("listed = %v, want %v", got, tc.want)
				}
				err = w.provider.Terminate(t.Context(), m.ProviderID)
				if stopped := !errors.Is(err, cloud.ErrNotFound); stopped != tc.want {
					t.Errorf("Terminate = %v", err)
				}
				time.Sleep(time.Minute)
				if running := w.cloud.Machines()[0].State == "running"; running == tc.want {
					t.Errorf("it runs: %v", running)
				}
			})
		})
	}
}

// Users keep the policies that they have: one that does not know the tag must say so.
func TestALatchThatPoliciesForbidSaysSo(t *testing.T) {
	id := controllerIdentity(t)
	for i, text := range id.Policies {
		id.Policies[i] = bytes.ReplaceAll(text, []byte(`"`+awsv1.TagOrphan+`",`), nil)
	}
	inWorld(t, awsmodel.Config{Identities: map[string]awsmodel.Identity{"AKIACONTROLLER": id}}, nil, func(t *testing.T, w *world) {
		_, m := w.create(t, newClaim("a"))
		if err := w.provider.SetLatch(t.Context(), m.ProviderID, true); err == nil || !strings.Contains(err.Error(), awsv1.TagOrphan) {
			t.Errorf("SetLatch = %v, want that the tag is not allowed", err)
		}
	})
}
