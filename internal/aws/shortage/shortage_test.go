package shortage

import (
	"testing"
	"testing/synctest"
	"time"
)

func pool(capacityType, instanceType, zone string) Pool {
	return Pool{CapacityType: capacityType, InstanceType: instanceType, Zone: zone}
}

func (p Pool) in(group, partition string) Pool {
	p.Place = Place{group, partition}
	return p
}

func TestWhatIsOut(t *testing.T) {
	m5a := pool("spot", "m5.large", "z-a")
	for name, tc := range map[string]struct {
		mark func(*List)
		pool Pool
		want bool
	}{
		"nothing at first":                           {func(*List) {}, m5a, false},
		"a marked pool":                              {func(s *List) { s.Mark(m5a) }, m5a, true},
		"not the pool in another zone":               {func(s *List) { s.Mark(m5a) }, pool("spot", "m5.large", "z-b"), false},
		"not another type":                           {func(s *List) { s.Mark(m5a) }, pool("spot", "m5.xlarge", "z-a"), false},
		"not the other capacity type":                {func(s *List) { s.Mark(m5a) }, pool("on-demand", "m5.large", "z-a"), false},
		"every pool of a capacity type":              {func(s *List) { s.MarkCapacityType("spot") }, m5a, true},
		"no pool of the other capacity type":         {func(s *List) { s.MarkCapacityType("spot") }, pool("on-demand", "m5.large", "z-a"), false},
		"a group, of what is out everywhere":         {func(s *List) { s.Mark(m5a) }, m5a.in("pg-1", "2"), true},
		"nothing beside a group that lacks it":       {func(s *List) { s.Mark(m5a.in("pg-1", "")) }, m5a, false},
		"not in another group":                       {func(s *List) { s.Mark(m5a.in("pg-1", "")) }, m5a.in("pg-2", ""), false},
		"in the partition that lacks it":             {func(s *List) { s.Mark(m5a.in("pg-1", "1")) }, m5a.in("pg-1", "1"), true},
		"not in another partition":                   {func(s *List) { s.Mark(m5a.in("pg-1", "1")) }, m5a.in("pg-1", "2"), false},
		"any type in a zone of a group that is full": {func(s *List) { s.MarkGroup("pg-1", "z-a") }, m5a.in("pg-1", "2"), true},
		"not in another zone of such a group":        {func(s *List) { s.MarkGroup("pg-1", "z-b") }, m5a.in("pg-1", "2"), false},
		"nothing beside a group that is full":        {func(s *List) { s.MarkGroup("pg-1", "z-a") }, m5a, false},
		"a reservation is not a pool":                {func(s *List) { s.MarkReservation("cr-1") }, m5a, false},
		"a subnet is not a pool":                     {func(s *List) { s.MarkSubnet("subnet-1") }, m5a, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := New()
			tc.mark(s)
			if got := s.Out(tc.pool); got != tc.want {
				t.Errorf("Out = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestEntriesRunOutAndMoveTheSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		before := s.Sequence()
		s.Mark(pool("spot", "m5.large", "z-a"))
		marked := s.Sequence()
		if marked == before {
			t.Error("a mark did not move the sequence")
		}
		time.Sleep(2 * time.Minute)
		s.Mark(pool("spot", "m5.large", "z-a")) // lives on from here
		again := s.Sequence()
		time.Sleep(2 * time.Minute)
		if !s.Out(pool("spot", "m5.large", "z-a")) {
			t.Error("marking again did not prolong the entry")
		}
		if s.Sequence() != again {
			t.Error("the sequence moved although nothing changed")
		}
		time.Sleep(time.Minute)
		if s.Out(pool("spot", "m5.large", "z-a")) {
			t.Error("an entry outlived three minutes")
		}
		if s.Sequence() == again {
			t.Error("an entry that ran out did not move the sequence")
		}
	})
}

func TestAZoneIsOutWhenAllItsSubnetsAre(t *testing.T) {
	s := New()
	s.MarkSubnet("subnet-1")
	for name, tc := range map[string]struct {
		subnets []string
		want    bool
	}{
		"the only subnet is full":  {[]string{"subnet-1"}, true},
		"one of two is full":       {[]string{"subnet-1", "subnet-2"}, false},
		"no subnets block nothing": {nil, false},
	} {
		if got := s.ZoneOut(tc.subnets); got != tc.want {
			t.Errorf("%s: ZoneOut = %v, want %v", name, got, tc.want)
		}
	}
}
