package scenario

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/kit/selector"
)

// readSettings reads the section settings, one setting a line.
func (w *World) readSettings(text string) error {
	for _, l := range lines(text) {
		switch key, value, _ := strings.Cut(l.name, "="); key {
		case "preferences":
			w.Settings.IgnorePreferences = value == "Ignore"
		case "minValues":
			w.Settings.MinValuesBestEffort = value == "BestEffort"
		case "devices":
			if value == "true" {
				w.Settings.Selects = selector.Selects
			}
		case "spot-to-spot":
			w.disruption.SpotToSpot = value == "true"
		case "reserved":
			w.Settings.ReservedCapacity = value == "true"
		case "count", "tied": // read where the answer is written
		case "search", "terms", "cut-at", "node-price", "interruption-cost", "large", "large-gain", "grace":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return err
			}
			w.setNumber(key, n)
		case "now":
			now, err := time.Parse(time.RFC3339Nano, value)
			if err != nil {
				return err
			}
			w.Now = now
		case "band":
			if err := json.Unmarshal([]byte(value), &w.Settings.Band); err != nil {
				return fmt.Errorf("band: %w", err)
			}
		case "firstfit":
			w.Settings.FirstFit = value == "true"
		case "default-spread":
			for _, x := range split(value, ",") {
				c, err := spreadOf(x, nil)
				if err != nil {
					return err
				}
				c.LabelSelector = nil
				w.Settings.DefaultSpread = append(w.Settings.DefaultSpread, c)
			}
		default:
			return fmt.Errorf("unknown setting %q", key)
		}
	}
	return nil
}

// setNumber sets a setting whose value is a number.
func (w *World) setNumber(key string, n int64) {
	set := &w.Settings
	switch key {
	case "search":
		set.Search = work.Units(n)
	case "terms":
		set.Terms = work.Units(n)
	case "cut-at":
		set.CutAt = work.Units(n)
	case "node-price":
		set.NodePrice = cloud.NanoUSD(n)
	case "interruption-cost":
		set.InterruptionCost = cloud.NanoUSD(n)
	case "large":
		set.Size.Large = n
	case "large-gain":
		set.Size.GainPermille = n
	case "grace":
		set.DefaultTerminationGracePeriod = new(time.Duration(n))
	}
}

// settings writes the section settings.
func (w *writer) settings() string {
	var b strings.Builder
	s := &w.in.Settings
	fmt.Fprintf(&b, "reserved=%v\n", s.ReservedCapacity)
	if s.IgnorePreferences {
		b.WriteString("preferences=Ignore\n")
	}
	if s.Selects != nil && w.keep {
		b.WriteString("devices=true\n")
	}
	if s.MinValuesBestEffort {
		b.WriteString("minValues=BestEffort\n")
	}
	if w.width > 0 && !w.in.Now.IsZero() {
		fmt.Fprintf(&b, "now=%s\n", w.in.Now.UTC().Format(time.RFC3339Nano))
	}
	for _, x := range []struct {
		name string
		n    int64
	}{
		{"search", int64(s.Search)}, {"terms", int64(s.Terms)}, {"cut-at", int64(s.CutAt)}, {"node-price", int64(s.NodePrice)},
		{"interruption-cost", int64(s.InterruptionCost)},
		{"large", s.Size.Large}, {"large-gain", s.Size.GainPermille},
	} {
		if x.n != 0 {
			fmt.Fprintf(&b, "%s=%d\n", x.name, x.n)
		}
	}
	if s.DefaultTerminationGracePeriod != nil {
		fmt.Fprintf(&b, "grace=%d\n", *s.DefaultTerminationGracePeriod)
	}
	if s.Band != (shape.Band{}) {
		if text, err := json.Marshal(s.Band); err == nil {
			fmt.Fprintf(&b, "band=%s\n", text)
		}
	}
	for i := range s.DefaultSpread {
		c := &s.DefaultSpread[i]
		fmt.Fprintf(&b, "default-spread=%s:%d", w.key(c.TopologyKey), c.MaxSkew)
		if c.WhenUnsatisfiable == corev1.ScheduleAnyway {
			b.WriteString(":anyway")
		}
		if c.MinDomains != nil {
			fmt.Fprintf(&b, ":min=%d", *c.MinDomains)
		}
		b.WriteString("\n")
	}
	return b.String()
}
