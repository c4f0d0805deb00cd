// Package stories makes up random worlds for tests, as texts that package scenario reads: the same seed gives the
// same world. They are full of what keeps pods from nodes.
package stories

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A teller makes things up.
type teller struct {
	*rand.Rand
	b strings.Builder
}

func (t *teller) pick(list ...string) string { return list[t.IntN(len(list))] }

func (t *teller) one(in int) bool { return t.IntN(in) == 0 }

func (t *teller) say(format string, args ...any) { fmt.Fprintf(&t.b, format, args...) }

// perhaps says it one time in so many.
func (t *teller) perhaps(in int, format string, args ...any) {
	if t.one(in) {
		t.say(format, args...)
	}
}

// Of tells the world of a seed.
func Of(seed uint64) []byte {
	t := &teller{Rand: rand.New(rand.NewPCG(seed, 29))}
	t.say("World %d.\n\n-- settings --\nreserved=true\n", seed)
	t.perhaps(5, "preferences=Ignore\n")
	t.perhaps(4, "minValues=BestEffort\n")
	t.types()
	t.pools()
	t.volumes()
	t.nodes()
	t.pods()
	return []byte(t.b.String())
}

func (t *teller) types() {
	t.say("-- shapes --\n")
	for i := range 3 + t.IntN(6) {
		cpu := 1 + t.IntN(12)
		t.say("type-%d cpu=%d mem=%dGi pods=%d zones=%s od=%.3f label=arch:%s label=size:%s", i, cpu, cpu*(1+t.IntN(6)), 3+t.IntN(30),
			t.pick("a,b,c", "a,b", "c", "a,b,c"), float64(cpu)*(0.03+0.03*t.Float64()),
			t.pick("amd64", "amd64", "arm64"), t.pick("s", "m", "l"))
		t.perhaps(2, " spot=%.3f", float64(cpu)*(0.01+0.02*t.Float64()))
		t.perhaps(6, " gpu=%d", 1+t.IntN(4))
		t.perhaps(6, " dry=%s", t.pick("a", "b", "c"))
		t.say(" volumes=csi:%d\n", 2+t.IntN(3))
	}
}

func (t *teller) pools() {
	t.say("-- pools --\n")
	for i := range 1 + t.IntN(3) {
		t.say("pool-%d", i)
		t.perhaps(2, " need=zone:%s", t.pick("In:a", "In:a|b", "NotIn:c", "In:c"))
		t.perhaps(2, " need=ct:In:%s", t.pick("spot", "on-demand"))
		t.perhaps(3, " need=arch:In:%s", t.pick("amd64", "arm64"))
		t.perhaps(4, " need=size:%s", t.pick("In:s", "NotIn:l", "Exists", "DoesNotExist"))
		t.perhaps(4, " need=team:In:%s", t.pick("x", "x|y"))
		t.perhaps(6, " need=type:Exists::%d", 2+t.IntN(6))
		t.perhaps(3, " taint=%s:v:NoSchedule", t.pick("t", "u"))
		t.perhaps(3, " limits=cpu:%d", 1+t.IntN(16))
		t.perhaps(3, " weight=%d", 1+t.IntN(3))
		t.say("\n")
	}
}

func (t *teller) volumes() {
	t.say(`-- objects --
{"kind": "StorageClass", "metadata": {"name": "late"}, "provisioner": "csi", "volumeBindingMode": "WaitForFirstConsumer"}
`)
	for i := range 4 {
		bound := t.one(2)
		name := ""
		if bound {
			name = fmt.Sprintf(`, "volumeName": "volume-%d"`, i)
			t.say(`{"kind": "PersistentVolume", "metadata": {"name": "volume-%d"}, "spec": {
  "csi": {"driver": "csi", "volumeHandle": "v%d"},
  "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["%s"]}]}]}}}, "status": {"phase": "Bound"}}
`, i, i, t.pick("a", "b", "c"))
		}
		t.say(`{"kind": "PersistentVolumeClaim", "metadata": {"name": "claim-%d", "namespace": "default",
  "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
  "spec": {"storageClassName": "late"%s}, "status": {"phase": "%s"}}
`, i, name, map[bool]string{true: "Bound", false: "Pending"}[bound])
	}
}

func (t *teller) nodes() {
	t.say("-- nodes --\n")
	for i := range t.IntN(5) {
		t.say("node-%d cpu=%d mem=%dGi pods=10 zone=%s ct=%s arch=amd64", i, 1+t.IntN(6), 1+t.IntN(9),
			t.pick("a", "b", "c"), t.pick("spot", "on-demand"))
		t.perhaps(2, " pool=pool-0")
		t.perhaps(4, " taint=%s:v:NoSchedule", t.pick("t", "w"))
		t.say("\n")
	}
}

func (t *teller) pods() {
	t.say("-- pods --\n")
	for i := range 3 + t.IntN(8) {
		t.say("pod%c x%d cpu=%dm mem=%dMi labels=app:%s", 'a'+i, 1+t.IntN(3), 100*(1+t.IntN(60)), 128*(1+t.IntN(60)),
			t.pick("p", "q", "r"))
		t.perhaps(2, " owner=set-%d", i)
		t.perhaps(9, " gpu=1")
		for range 1 + t.IntN(2) {
			switch t.IntN(12) {
			case 0:
				t.say(" spread=%s:%d:of=app|%s", t.pick("zone", "host", "team"), 1+t.IntN(2), t.pick("p", "q"))
			case 1:
				t.say(" near=%s:app:%s", t.pick("zone", "host"), t.pick("p", "q", "r", "nobody"))
			case 2:
				t.say(" apart=%s:app:%s", t.pick("zone", "host"), t.pick("p", "q", "r"))
			case 3:
				t.say(" select=%s", t.pick("zone:a", "zone:b", "zone:c", "arch:arm64", "ct:spot", "team:x", "team:z", "size:l"))
			case 4:
				t.say(" need=%s", t.pick("zone:In:b|c", "arch:NotIn:amd64", "team:Exists", "size:In:m,zone:In:c",
					"ct:In:on-demand;zone:In:a"))
			case 5:
				t.say(" port=%d", 80+t.IntN(2))
			case 6:
				t.say(" tolerate=%s:*", t.pick("t", "u"))
			case 7:
				t.say(" pvc=claim-%d", t.IntN(4))
			}
		}
		t.say("\n")
	}
}
