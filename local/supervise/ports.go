package supervise

import (
	"fmt"

	"karpenter.sh/karpenter/internal/kit/loopback"
	"karpenter.sh/karpenter/local/plane"
)

// holds are the ports of a cluster, by what they are for.
type holds map[string]*loopback.Port

// choosePorts takes a free port for each name. The last run's ports are taken again where they are free, so that a
// kubeconfig that was copied elsewhere stays good. A wanted API port is taken or refused.
func choosePorts(before map[string]int, wanted int) (holds, error) {
	chosen := holds{}
	for _, name := range plane.PortNames() {
		choose := loopback.Preferably
		preferred := before[name]
		if name == plane.APIPort && wanted != 0 {
			choose, preferred = exactly, wanted
		}
		p, err := choose(preferred)
		if err != nil {
			chosen.release()
			return nil, err
		}
		chosen[name] = p
	}
	return chosen, nil
}

func exactly(number int) (*loopback.Port, error) {
	p, err := loopback.Exactly(number)
	if err != nil {
		return nil, fmt.Errorf("port %d is taken (%w); choose another with --port, or any free one with --port 0", number, err)
	}
	return p, nil
}

func (h holds) numbers() map[string]int {
	numbers := map[string]int{}
	for name, p := range h {
		numbers[name] = p.Number
	}
	return numbers
}

func (h holds) release() {
	for _, p := range h {
		p.Release()
	}
}
