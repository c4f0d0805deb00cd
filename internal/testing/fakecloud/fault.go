package fakecloud

import (
	"context"
	"fmt"
	"time"

	"karpenter.sh/karpenter/cloud"
)

// A Method names a method of cloud.Provider.
type Method string

// The methods that can go wrong.
const (
	Catalog   Method = "Catalog"
	Launch    Method = "Launch"
	Terminate Method = "Terminate"
	Get       Method = "Get"
	List      Method = "List"
	Drifted   Method = "Drifted"
	SetLatch  Method = "SetLatch"
	Inherited Method = "Inherited"
	Adopt     Method = "Adopt"
	MayReboot Method = "MayReboot"
	Reboot    Method = "Reboot"
)

// A Call is what a fault may look at.
type Call struct {
	Method     Method
	Claim      string // Launch, Adopt, Drifted, MayReboot and Reboot
	ProviderID string // Terminate, Get, SetLatch, Adopt, Drifted, MayReboot and Reboot
}

// A Fault is what goes wrong with one call. The zero value is none.
type Fault struct {
	Delay time.Duration // the call takes so much longer; its context may end it
	Err   error         // the call does nothing and returns this
	Lost  bool          // Launch, Terminate and Reboot act, but the answer never arrives
	After time.Duration // Launch, Terminate and Reboot act, and the answer takes so much longer; the context may end it
}

// SetFault installs what goes wrong from now on: f is asked at every call, about one at a time, so that it may count what it sees. It must
// not wait. nil means that all is well.
func (c *Cloud) SetFault(f func(Call) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// SetDrift makes the machine of a claim drift, or not, if the reason is "".
func (c *Cloud) SetDrift(claim string, reason cloud.DriftReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drift[claim] = reason
}

// Where names stock. An empty field means all.
type Where struct{ Type, Zone, CapacityType string }

func (w Where) covers(k offeringKey) bool {
	return (w.Type == "" || w.Type == k.Type) && (w.Zone == "" || w.Zone == k.Zone) &&
		(w.CapacityType == "" || w.CapacityType == k.CapacityType)
}

// SetStock says how many more machines can be had there. A negative number means any number again.
func (c *Cloud) SetStock(w Where, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 {
		delete(c.stock, w)
		return
	}
	c.stock[w] = n
}

// begin waits as long as the call takes, and fails it if it is to fail before it acts.
func (c *Cloud) begin(ctx context.Context, call Call) (Fault, error) {
	if err := ctx.Err(); err != nil {
		return Fault{}, err
	}
	c.mu.Lock()
	f := c.fault
	c.mu.Unlock()
	if f == nil {
		return Fault{}, nil
	}
	fault := c.ask(f, call)
	if err := wait(ctx, fault.Delay); err != nil {
		return Fault{}, err
	}
	return fault, fault.Err
}

func (c *Cloud) ask(f func(Call) Fault, call Call) Fault {
	c.asking.Lock()
	defer c.asking.Unlock()
	return f(call)
}

// end is the way of the answer to a call that has acted.
func (f Fault) end(ctx context.Context, m Method) error {
	if err := wait(ctx, f.After); err != nil {
		return err
	}
	if f.Lost {
		return errLost(m)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func errLost(m Method) error {
	return fmt.Errorf("%s: connection lost before the answer came: %w", m, context.DeadlineExceeded)
}
