package page

import (
	"fmt"
	"testing"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
)

// BenchmarkPicture draws 5,000 nodes with 100,000 pods, of which one pod has come since the last picture.
func BenchmarkPicture(b *testing.B) {
	w := newTown()
	for i := range 5000 {
		w.node(fmt.Sprintf("node-%04d", i))
	}
	for base := 0; base < 100_000; base += 5000 {
		w.Update(func(d *cluster.Draft) {
			for i := base; i < base+5000; i++ {
				d.PutPod(townPod(fmt.Sprintf("web-5d4f-%06d", i), fmt.Sprintf("node-%04d", i%5000)))
			}
		})
	}
	s := service(w)
	leave, _ := s.enter()
	defer leave()
	s.turn(b.Context(), noon)
	b.Logf("the whole picture is %d bytes", len(s.frame.whole()))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Update(func(d *cluster.Draft) { d.PutPod(townPod(fmt.Sprint("new-", i), fmt.Sprintf("node-%04d", i%5000))) })
		s.turn(b.Context(), noon.Add(time.Duration(i+1)*time.Second))
	}
	b.ReportMetric(float64(len(s.frame.changes)), "bytes/change")
}
