package commitment_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	control "karpenter.sh/karpenter/internal/control/commitment"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// An account names commitments by their ids, with how many machines or dollars each has.
type account struct {
	has   map[string]string
	err   error
	asked int
}

func (a *account) Commitments(context.Context) ([]v1alpha1.CommitmentDiscountSpec, error) {
	a.asked++
	var out []v1alpha1.CommitmentDiscountSpec
	for id, quantity := range a.has {
		s := v1alpha1.CommitmentDiscountSpec{Category: v1alpha1.CommitmentUsage, Type: v1alpha1.ReservedInstance, ID: id, Quantity: quantity,
			Scope: v1alpha1.CommitmentScope{Region: "r", InstanceType: "m5.large"}}
		if strings.HasPrefix(id, "plan") {
			s = v1alpha1.CommitmentDiscountSpec{Category: v1alpha1.CommitmentSpend, Type: v1alpha1.ComputeSavingsPlan, ID: id, Quantity: quantity,
				Rates: []v1alpha1.CommitmentRate{{InstanceType: "m5.large", Price: "0.07"}}}
		}
		out = append(out, s)
	}
	return out, a.err
}

// An importing is an importer over an API server in memory that it hears from at once.
type importing struct {
	*account
	t       *testing.T
	api     *memapi.Server
	store   *cluster.Store
	metrics *telemetry.Metrics
	share   string
	stop    func()
}

// inImport runs a test with an importer that has run for a minute.
func inImport(t *testing.T, a *account, before []*v1alpha1.CommitmentDiscount, test func(*importing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		i := &importing{account: a, t: t, api: memapi.New(scheme), store: cluster.NewStore(), share: "50%",
			metrics: telemetry.NewMetrics(prometheus.NewRegistry(), nil)}
		for _, d := range before {
			i.api.Put(d)
		}
		ctx, end := context.WithCancel(t.Context())
		go i.api.Watch(ctx, 0, func(e memapi.Event) {
			if d, ok := e.Object.(*v1alpha1.CommitmentDiscount); ok {
				i.store.Update(func(draft *cluster.Draft) {
					if e.Deleted {
						cluster.Commitments.Delete(draft, d.Name)
					} else {
						cluster.Commitments.Put(draft, d)
					}
				})
			}
		}, func() { i.store.Update(func(d *cluster.Draft) { d.Synced(true) }) })
		i.start()
		defer func() { i.stop(); end(); synctest.Wait() }()
		time.Sleep(time.Minute)
		test(i)
	})
}

// start starts an importer, as a replica does that begins to lead.
func (i *importing) start() {
	importer, err := control.NewImporter(i.store, i.api.Client("loop"), i.account, i.share, i.metrics)
	if err != nil {
		i.t.Fatal(err)
	}
	var ctx context.Context
	ctx, i.stop = context.WithCancel(telemetry.WithLog(i.t.Context(), slog.New(slog.DiscardHandler)))
	go func() { _ = importer.Run(ctx) }()
}

// objects are told by name, quantity, share, rates and how long ago they were imported.
func (i *importing) objects() []string {
	list := &v1alpha1.CommitmentDiscountList{}
	if err := i.api.Client("test").List(i.t.Context(), list); err != nil {
		i.t.Fatal(err)
	}
	var out []string
	for k := range list.Items {
		d := &list.Items[k]
		at, imported := d.ImportedAt()
		text := fmt.Sprintf("%s %s of %s", d.Name, d.Spec.Share, d.Spec.Quantity)
		if imported != (d.Labels[v1.ImportedLabelKey] == "true") && d.Name != "copy" {
			i.t.Errorf("%s has the labels %v", d.Name, d.Labels)
		}
		if imported {
			text += " " + time.Since(at).Truncate(time.Hour).String()
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

func (i *importing) want(when string, want ...string) {
	i.t.Helper()
	if diff := cmp.Diff(want, i.objects()); diff != "" {
		i.t.Errorf("%s:\n%s", when, diff)
	}
}

func (i *importing) edit(name string, edit func(*v1alpha1.CommitmentDiscount)) {
	i.t.Helper()
	d := &v1alpha1.CommitmentDiscount{}
	if err := i.api.Client("person").Get(i.t.Context(), client.ObjectKey{Name: name}, d); err != nil {
		i.t.Fatal(err)
	}
	next := d.DeepCopy()
	edit(next)
	if err := i.api.Client("person").Patch(i.t.Context(), next, client.MergeFrom(d)); err != nil {
		i.t.Fatal(err)
	}
}

func TestObjectsFollowTheAccount(t *testing.T) {
	inImport(t, &account{has: map[string]string{"plan-A": "12.5", "x": "3"}}, nil, func(i *importing) {
		i.want("at first", "ri-x 0.5 of 3 0s", "sp-plan-a 0.5 of 12.5 0s")
		i.has = map[string]string{"plan-A": "13", "y": "1"}
		time.Sleep(30 * time.Minute)
		i.want("before the hour is over", "ri-x 0.5 of 3 0s", "sp-plan-a 0.5 of 12.5 0s")
		time.Sleep(30 * time.Minute)
		i.want("then", "ri-y 0.5 of 1 0s", "sp-plan-a 0.5 of 13 0s")
		if i.asked != 2 || testutil.ToFloat64(i.metrics.CommitmentImportFailures) != 0 {
			t.Errorf("the account was asked %d times in an hour", i.asked)
		}
	})
}

// What is not named because something failed stays, and is not taken for fresh.
func TestOnlyAWholeAnswerDeletes(t *testing.T) {
	inImport(t, &account{has: map[string]string{"x": "3", "y": "1"}}, nil, func(i *importing) {
		i.has, i.err = map[string]string{"x": "4", "z": "2"}, errors.New("no rights")
		time.Sleep(2 * time.Hour)
		i.want("while a part fails", "ri-x 0.5 of 4 0s", "ri-y 0.5 of 1 2h0m0s", "ri-z 0.5 of 2 0s")
		if n := testutil.ToFloat64(i.metrics.CommitmentImportFailures); n != 2 || i.asked != 3 {
			t.Errorf("%v failures are counted, and the account was asked %d times", n, i.asked)
		}
		i.err = nil
		time.Sleep(time.Hour)
		i.want("when all is read", "ri-x 0.5 of 4 0s", "ri-z 0.5 of 2 0s")
	})
}

// Objects that a person wrote stay as they are, whatever they are called, and so do shares that a person wrote.
func TestWhatPeopleWroteStays(t *testing.T) {
	byHand := func(name, id string, annotations map[string]string) *v1alpha1.CommitmentDiscount {
		d := &v1alpha1.CommitmentDiscount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		d.Spec = v1alpha1.CommitmentDiscountSpec{Category: v1alpha1.CommitmentUsage, ID: id, Quantity: "9", Share: "1"}
		return d
	}
	copied := map[string]string{v1.ImportedAtAnnotationKey: "2000-01-01T00:00:00Z"} // with all its annotations
	inImport(t, &account{has: map[string]string{"x": "3", "y": "1"}}, []*v1alpha1.CommitmentDiscount{
		byHand("ri-x", "x", nil), byHand("mine", "m", nil), byHand("copy", "y", copied),
	}, func(i *importing) {
		with := func(more ...string) []string {
			return append(slices.DeleteFunc(i.objects(), func(s string) bool { return !strings.HasPrefix(s, "copy ") }), more...)
		}
		i.want("at first", with("mine 1 of 9", "ri-x 1 of 9", "ri-y 0.5 of 1 0s")...)
		i.edit("ri-y", func(d *v1alpha1.CommitmentDiscount) { d.Spec.Share, d.Spec.Quantity = "0.25", "7" })
		time.Sleep(time.Hour)
		i.want("a share of a person", with("mine 1 of 9", "ri-x 1 of 9", "ri-y 0.25 of 1 0s")...)
		i.stop()
		i.share = "100%"
		i.start()
		time.Sleep(time.Minute)
		i.want("with another setting", with("mine 1 of 9", "ri-x 1 of 9", "ri-y 0.25 of 1 0s")...)
		i.edit("ri-y", func(d *v1alpha1.CommitmentDiscount) { d.Spec.Share = "1" })
		time.Sleep(time.Hour)
		i.stop()
		i.share = "10%"
		i.start()
		time.Sleep(time.Minute)
		i.want("the share of the setting", with("mine 1 of 9", "ri-x 1 of 9", "ri-y 0.1 of 1 0s")...)
		i.has = nil
		time.Sleep(time.Hour)
		i.want("when nothing is bought", with("mine 1 of 9", "ri-x 1 of 9")...)
	})
}

func TestAShareThatIsNone(t *testing.T) {
	if _, err := control.NewImporter(nil, nil, nil, "much", nil); err == nil || !strings.Contains(err.Error(), "import-commitments") {
		t.Errorf("error %v", err)
	}
}
