package commitment

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
)

var now = time.Date(2026, 5, 1, 12, 30, 0, 0, time.UTC)

// market sells m5.large in region r.
func market() []*cloud.Catalog {
	it := &cloud.InstanceType{Name: "m5.large", Labels: map[string][]string{corev1.LabelTopologyRegion: {"r"}}}
	it.Offerings = []cloud.Offering{{Price: cloud.FromDollars(0.1), Available: true,
		Labels: map[string]string{corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand}}}
	return []*cloud.Catalog{{Types: []*cloud.InstanceType{it}}}
}

func plan(name string, edit func(*v1alpha1.CommitmentDiscountSpec)) *v1alpha1.CommitmentDiscount {
	d := &v1alpha1.CommitmentDiscount{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now)}}
	d.Spec = v1alpha1.CommitmentDiscountSpec{Category: v1alpha1.CommitmentSpend, Type: v1alpha1.ComputeSavingsPlan, Quantity: "1", Share: "50%",
		Rates: []v1alpha1.CommitmentRate{{Family: "m5", Discount: "30%"}}}
	if edit != nil {
		edit(&d.Spec)
	}
	return d
}

func TestWhatCounts(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(d))) }
	type spec = v1alpha1.CommitmentDiscountSpec
	for name, tc := range map[string]struct {
		edit func(*spec)
		want State
	}{
		"a plan":                                 {nil, Certain},
		"one that ends in eight days":            {func(s *spec) { s.End = at(192 * time.Hour) }, Certain},
		"one that ends in six days":              {func(s *spec) { s.End = at(144 * time.Hour) }, Ending},
		"one that ended in this hour":            {func(s *spec) { s.End = at(-time.Minute) }, Ending},
		"one that ended an hour ago":             {func(s *spec) { s.End = at(-time.Hour) }, Ended},
		"one that begins in this hour":           {func(s *spec) { s.Start = at(time.Minute) }, NotStarted},
		"one that began in this hour":            {func(s *spec) { s.Start = at(-time.Minute) }, NotStarted},
		"one without a share":                    {func(s *spec) { s.Share = "" }, NotShared},
		"one without rates":                      {func(s *spec) { s.Rates = nil }, NoRates},
		"one with rates of types that none sell": {func(s *spec) { s.Rates[0].Family = "c5" }, NoRates},
		"one of another region": {func(s *spec) {
			s.Type, s.Scope = v1alpha1.EC2InstanceSavingsPlan, v1alpha1.CommitmentScope{Region: "s", Family: "m5"}
		}, NoRates},
		"one without a number": {func(s *spec) { s.Quantity = "much" }, Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "one that began in this hour" {
				tc.want = NotStarted // active from the next clock hour on
			}
			books := Read([]*v1alpha1.CommitmentDiscount{plan("p", tc.edit)}, cluster.NewStore().Snapshot(), market(), now)
			if got := books.Verdicts[0].State; got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			if (books.Certain != nil) != (tc.want == Certain) || (books.All != nil) != (tc.want == Certain || tc.want == Ending) {
				t.Errorf("certain %v, all %v", books.Certain, books.All)
			}
		})
	}
	if Read(nil, cluster.NewStore().Snapshot(), market(), now) != nil {
		t.Error("there are books without commitments")
	}
}

func TestOneIDCountsOnceAndSixteenCount(t *testing.T) {
	var all []*v1alpha1.CommitmentDiscount
	for i := range 18 {
		d := plan(fmt.Sprintf("p%02d", i), func(s *v1alpha1.CommitmentDiscountSpec) { s.Quantity = fmt.Sprint(i + 1) })
		d.CreationTimestamp = metav1.NewTime(now.Add(time.Duration(-i) * time.Hour))
		all = append(all, d)
	}
	all[2].Spec.ID, all[3].Spec.ID = "same", "same"
	books := Read(all, cluster.NewStore().Snapshot(), market(), now)
	for i, want := range map[int]State{0: TooMany, 1: Certain, 2: Duplicate, 3: Certain, 17: Certain} {
		if got := books.Verdicts[i].State; got != want {
			t.Errorf("p%02d: %s, want %s", i, got, want)
		}
	}
	if n := len(books.Certain.Commitments); n != 16 {
		t.Errorf("%d count", n)
	}
}

// What a person wrote goes before what was imported, though that is older. What is imported counts for a day after it was last heard of.
func TestImportedCommitments(t *testing.T) {
	imported := func(name, at string, age time.Duration) *v1alpha1.CommitmentDiscount {
		d := plan(name, nil)
		d.Annotations = map[string]string{v1.ImportedAtAnnotationKey: at}
		d.Spec.ID, d.CreationTimestamp = "same", metav1.NewTime(now.Add(-age))
		return d
	}
	at := func(age time.Duration) string { return now.Add(-age).Format(time.RFC3339) }
	person := plan("b", func(s *v1alpha1.CommitmentDiscountSpec) { s.ID = "same" })
	for name, tc := range map[string]struct {
		objects []*v1alpha1.CommitmentDiscount
		want    []State
	}{
		"heard of a day ago":      {[]*v1alpha1.CommitmentDiscount{imported("a", at(24*time.Hour), 0)}, []State{Certain}},
		"not heard of since then": {[]*v1alpha1.CommitmentDiscount{imported("a", at(24*time.Hour+time.Second), 0)}, []State{Stale}},
		"heard of at no time":     {[]*v1alpha1.CommitmentDiscount{imported("a", "lately", 0)}, []State{Stale}},
		"beside one of a person":  {[]*v1alpha1.CommitmentDiscount{imported("a", at(0), time.Hour), person}, []State{Duplicate, Certain}},
		"after one of a person":   {[]*v1alpha1.CommitmentDiscount{person, imported("c", at(0), time.Hour)}, []State{Certain, Duplicate}},
		"beside another import":   {[]*v1alpha1.CommitmentDiscount{imported("a", at(0), 0), imported("b", at(0), time.Hour)}, []State{Duplicate, Certain}},
	} {
		books := Read(tc.objects, cluster.NewStore().Snapshot(), market(), now)
		for i, want := range tc.want {
			if got := books.Verdicts[i].State; got != want {
				t.Errorf("%s: %s is %s, want %s", name, tc.objects[i].Name, got, want)
			}
		}
	}
}

func TestMachinesThatUseCommitments(t *testing.T) {
	labels := func(pairs ...string) map[string]string {
		out := map[string]string{corev1.LabelInstanceTypeStable: "m5.large", corev1.LabelTopologyZone: "a"}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	store := cluster.NewStore()
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "waits", UID: "waits"}}
	for key, value := range labels(v1.CapacityTypeLabelKey, v1.CapacityTypeOnDemand) {
		claim.Spec.Requirements = append(claim.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	store.Update(func(d *cluster.Draft) {
		for name, l := range map[string]map[string]string{
			"ours": labels(v1.CapacityTypeLabelKey, v1.CapacityTypeOnDemand), "spot": labels(v1.CapacityTypeLabelKey, v1.CapacityTypeSpot),
			"group": labels(), "group-spot": labels(managedCapacity, "SPOT"), "unknown": labels(corev1.LabelInstanceTypeStable, "x9.large"),
		} {
			d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l}})
		}
		d.PutClaim(claim)
	})
	books := Read([]*v1alpha1.CommitmentDiscount{plan("p", nil)}, store.Snapshot(), market(), now)
	var names []string
	for name := range books.Certain.Machines {
		names = append(names, name)
	}
	if len(names) != 3 {
		t.Errorf("%v, want ours, group and the claim that waits", names)
	}
	v := &books.Verdicts[0]
	if v.Used < 0.41 || v.Used > 0.43 {
		t.Errorf("three machines at 7 cents use %.2f of half a dollar", v.Used)
	}
	if unused := v.Unused.Dollars(); unused < 0.289 || unused > 0.291 || !v.Takers || books.Coverage != 1 {
		t.Errorf("$%.3f is not used, machines use it: %v, and covers %v", unused, v.Takers, books.Coverage)
	}
}
