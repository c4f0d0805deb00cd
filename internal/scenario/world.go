package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// A World is the cluster of a story.
type World struct {
	Store    *cluster.Store
	Catalog  *cloud.Catalog // of pools that have none of their own
	Pools    []engine.Pool
	Settings engine.Settings
	Now      time.Time
	Engine   *engine.Engine
	Objects  []runtime.Object // what was put into the store, as the API server would show it
	// Memory is what the engine remembered when it was asked, nil where the story does not say it.
	Memory *engine.Memory
	// Commitments are what the story's plans count on, nil for none.
	Commitments *tariff.Book

	disruption disrupt.Settings
	vacant     map[types.UID]time.Time // since when nodes have been empty, by claim

	pending []*corev1.Pod
	notes   map[cluster.PodKey]note
	spares  map[cluster.PodKey][]*corev1.Pod // by the namespace and the name of their buffer
	own     map[string]*cloud.Catalog        // by pool
	names   map[string]int
	claims  int
}

// zones is what the provider of stories knows about labels: its disks have a name of their own for the zone.
var zones = label.Table{Labels: []label.Label{{Key: corev1.LabelTopologyZone, Aliases: []string{"topology.ebs.csi.aws.com/zone"}}}}

// shortKeys are what stories call long label keys.
var shortKeys = map[string]string{
	"zone": corev1.LabelTopologyZone, "host": corev1.LabelHostname, "ct": v1.CapacityTypeLabelKey, "arch": corev1.LabelArchStable,
	"os": corev1.LabelOSStable, "type": corev1.LabelInstanceTypeStable, "pool": v1.NodePoolLabelKey,
}

// longKey returns the label key that a short one stands for, or the key itself.
func longKey(key string) string {
	if k, ok := shortKeys[key]; ok {
		return k
	}
	return key
}

// World builds the world of a story, before any round.
func (s *Scenario) World() (*World, error) {
	w := &World{Store: cluster.NewStore(), Engine: engine.New(zones), names: map[string]int{},
		disruption: disrupt.DefaultSettings(), vacant: map[types.UID]time.Time{}, Now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)}
	if err := w.readSettings(s.section("settings", 1)); err != nil {
		return nil, err
	}
	var err error
	if text := s.section("types", 1); text != "" {
		w.Catalog, w.own, err = readTypes(text)
	} else {
		w.Catalog, err = readShapes(s.section("shapes", 1))
	}
	if err != nil {
		return nil, err
	}
	if text := s.section("commitments", 1); text != "" {
		w.Commitments = &tariff.Book{}
		if err := errors.Join(json.Unmarshal([]byte(text), w.Commitments), w.Commitments.Check()); err != nil {
			return nil, fmt.Errorf("commitments: %w", err)
		}
	}
	if text := s.section("memory", 1); text != "" {
		w.Memory = &engine.Memory{}
		if err := json.Unmarshal([]byte(text), w.Memory); err != nil {
			return nil, fmt.Errorf("memory: %w", err)
		}
		w.Engine = engine.Recall(*w.Memory, zones)
	}
	return w, nil
}

// Enter adds what a round brings to the world.
func (w *World) Enter(s *Scenario, round int) error {
	if text := s.section("pools", round); text != "" || round == 1 {
		if err := w.readPools(text); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		section string
		read    func(string) error
	}{{"objects", w.readObjects}, {"nodes", w.readNodes}, {"delete", w.readDeletions}, {"pods", w.readPods},
		{"buffers", w.readBuffers}, {"pdbs", w.readPDBs}} {
		if err := step.read(s.section(step.section, round)); err != nil {
			return fmt.Errorf("%s of round %d: %w", step.section, round, err)
		}
	}
	w.seatPlanned()
	return nil
}
