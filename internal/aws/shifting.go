package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/zonalshift"
	"karpenter.sh/karpenter/internal/core/need"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// shiftEvery is how often ARC is asked for zonal shifts.
const shiftEvery = 30 * time.Second

// watchShifts begins to follow zonal shifts. It fails where ARC does not know the cluster: a user who enabled it
// must not believe that it works.
func (k *market) watchShifts(ctx context.Context) error {
	arn, err := k.env.facts.ARN(ctx)
	if err != nil {
		return fmt.Errorf("enable-zonal-shift: %w", err)
	}
	k.shifts = zonalshift.NewWatch(k.env.clients.Shifts, arn)
	err = k.shifts.Refresh(ctx)
	if ec2api.Code(err) == "ResourceNotFoundException" {
		return fmt.Errorf("enable-zonal-shift: ARC does not manage the cluster; run aws eks update-cluster-config "+
			"--name %s --zonal-shift-config enabled=true, or set it to false: %w", k.env.settings.ClusterName, err)
	}
	if err != nil {
		return fmt.Errorf("enable-zonal-shift: %w", err)
	}
	return nil
}

// errShifted says that nothing is done about a machine while its zone is shifted away: the answers of EC2 about an
// impaired zone may be wrong.
var errShifted = errors.New("traffic is shifted away from its zone by ARC; nothing is done about the machine until that ends")

// shifted reports whether a machine is in a zone from which traffic is shifted away.
func (k *market) shifted(providerID string) bool {
	if len(k.shifts.Zones()) == 0 {
		return false
	}
	zone, _, _ := strings.Cut(strings.TrimPrefix(providerID, "aws:///"), "/")
	return k.shifts.Away(k.classes.zoneID(zone))
}

// A remembered holds the machines of the last list. It is used for machines in shifted zones only.
type remembered struct {
	mu       sync.Mutex
	machines map[string]cloud.Machine // by provider id
}

func (r *remembered) get(providerID string) (cloud.Machine, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.machines[providerID]
	return m, ok
}

// update remembers a list, and returns it with the machines of shifted zones as they were before, because EC2 may not
// know them there.
func (r *remembered) update(list []cloud.Machine, shifted func(providerID string) bool) []cloud.Machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[string]cloud.Machine, len(list))
	for i, m := range list {
		if old, ok := r.machines[m.ProviderID]; ok && shifted(m.ProviderID) {
			list[i] = old
		}
		next[m.ProviderID] = list[i]
	}
	for id, m := range r.machines {
		if _, ok := next[id]; !ok && shifted(id) {
			next[id] = m
			list = append(list, m)
		}
	}
	r.machines = next
	return list
}

// tellShifts returns a task that publishes events for pools when a zone is shifted away, and when that ends.
func (k *market) tellShifts() func(context.Context) error {
	before := k.shifts.Zones()
	return func(ctx context.Context) error {
		if !k.classes.pools.WaitForSync(ctx) || !k.classes.objects.WaitForSync(ctx) {
			return nil
		}
		now := k.shifts.Zones()
		for _, id := range now {
			if !slices.Contains(before, id) {
				k.tellPools(id, telemetry.ZonalShiftActive,
					"traffic is shifted away from zone %s; nothing is launched, stopped or replaced there until that ends")
			}
		}
		for _, id := range before {
			if !slices.Contains(now, id) {
				k.tellPools(id, telemetry.ZonalShiftCleared, "traffic is no longer shifted away from zone %s")
			}
		}
		before = now
		return nil
	}
}

// tellPools writes an event for every pool that could have nodes in a zone.
func (k *market) tellPools(zoneID string, reason telemetry.Reason, message string) {
	for _, pool := range k.classes.pools.All() {
		if zone := k.classes.zoneOf(pool, zoneID); zone != "" {
			k.env.in.Events.Publish(telemetry.Event{
				Object: telemetry.PoolRef(pool), Reason: reason, Message: fmt.Sprintf(message, zone+" ("+zoneID+")"),
				Key: []string{pool.Name, zoneID},
			})
		}
	}
}

// zoneOf returns the name of the zone with an id if a pool could have nodes there, else "".
func (c *classes) zoneOf(pool *v1.NodePool, zoneID string) string {
	ref := pool.Spec.Template.Spec.NodeClassRef
	if ref == nil || ref.Group != awsv1.Group {
		return ""
	}
	nc, ok := c.objects.Get(ref.Name)
	if !ok {
		return ""
	}
	needs := need.Of(pool.Spec.Template.Spec.Requirements)
	for _, s := range nc.Status.Subnets {
		if s.ZoneID == zoneID && needs.AllowLabels(map[string]string{corev1.LabelTopologyZone: s.Zone,
			awsv1.LabelTopologyZoneID: zoneID}) {
			return s.Zone
		}
	}
	return ""
}
