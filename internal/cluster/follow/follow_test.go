package follow_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/follow"
)

func claim(name, id string, version int) *v1.NodeClaim {
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(version)}}
	c.Status.ProviderID = id
	return c
}

func node(name, id string, version int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(version)}}
	n.Spec.ProviderID = id
	return n
}

func names[T metav1.Object](list []T) []string {
	var out []string
	for _, o := range list {
		out = append(out, o.GetName()+"@"+o.GetResourceVersion())
	}
	return out
}

func TestObjects(t *testing.T) {
	store := cluster.NewStore()
	claims, nodes := follow.Claims(store), follow.Nodes(store)
	store.Update(func(d *cluster.Draft) {
		d.PutClaim(claim("z", "1", 1))
		d.PutClaim(claim("b", "2", 2)) // two nodes claim to be its machine
		d.PutClaim(claim("c", "", 3))  // has no node
		d.PutNode(node("n1", "1", 4))
		d.PutNode(node("n2", "2", 5))
		d.PutNode(node("n3", "2", 6))
		d.PutNode(node("other", "9", 7)) // has no claim
	})
	if got, want := names(claims.All()), []string{"b@2", "c@3", "z@1"}; !slices.Equal(got, want) {
		t.Errorf("claims = %v, want %v", got, want)
	}
	if got, want := names(nodes.All()), []string{"n1@4", "n2@5", "n3@6", "other@7"}; !slices.Equal(got, want) {
		t.Errorf("nodes = %v, want %v", got, want)
	}
	if c, ok := claims.Get("z"); !ok || c.Name != "z" {
		t.Errorf("Get(z) = %v, %v", c, ok)
	}
	for _, missing := range []string{"n1", "", "nobody"} {
		if c, ok := claims.Get(missing); ok {
			t.Errorf("Get(%q) = %v, want none", missing, c)
		}
	}
	if n, ok := nodes.Get("c"); ok {
		t.Errorf("Get(c) = %v, want no node: it is a claim", n)
	}
}

func TestWaitForSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cluster.NewStore()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if follow.Claims(store).WaitForSync(ctx) {
			t.Error("an empty picture is taken for complete")
		}
		go func() {
			time.Sleep(time.Minute)
			store.Update(func(d *cluster.Draft) { d.PutClaim(claim("a", "", 1)) })
			time.Sleep(time.Minute)
			store.Update(func(d *cluster.Draft) { d.Synced(true) })
		}()
		if began := time.Now(); !follow.Nodes(store).WaitForSync(t.Context()) || time.Since(began) < 2*time.Minute {
			t.Errorf("synced after %v, want two minutes", time.Since(began))
		}
	})
}

func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cluster.NewStore()
		store.Update(func(d *cluster.Draft) { d.PutClaim(claim("old", "1", 1)) })
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var mu sync.Mutex
		var told []string
		follow.Claims(store).Subscribe(ctx, func(name string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, name)
		})
		after := func(want []string, edit func(*cluster.Draft)) {
			t.Helper()
			store.Update(edit)
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if slices.Sort(told); !slices.Equal(told, want) {
				t.Errorf("told of %v, want %v", told, want)
			}
			told = nil
		}
		after([]string{"a", "b"}, func(d *cluster.Draft) { d.PutClaim(claim("a", "", 2)); d.PutClaim(claim("b", "", 3)) })
		after([]string{"a"}, func(d *cluster.Draft) { d.PutClaim(claim("a", "2", 4)) })
		after(nil, func(d *cluster.Draft) { d.PutNode(node("n", "2", 5)) }) // its claim is what it was
		after([]string{"old"}, func(d *cluster.Draft) { d.DeleteClaim("old") })
		stop()
		synctest.Wait()
		after(nil, func(d *cluster.Draft) { d.DeleteClaim("a") })
	})
}
