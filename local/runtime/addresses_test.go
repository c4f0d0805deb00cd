package runtime

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPodsHaveAddressesOfTheirOwn(t *testing.T) {
	a := newAddresses()
	first := a.take("")
	if again := a.take(first); again == first || again == "" {
		t.Errorf("a second pod got %q, the first %q", again, first)
	}
	for name, wanted := range map[string]string{"of the nodes": "10.0.255.1", "of pods that are played": "10.244.0.9", "that is none": "x"} {
		if got := a.take(wanted); got == wanted {
			t.Errorf("a pod got an address %s", name)
		}
	}
	a.release(first)
	if got := a.take(first); got != first {
		t.Errorf("a pod that comes back got %q, want %q, which is free", got, first)
	}
}

func TestTwoPodsHaveTheSamePort(t *testing.T) {
	a := newAddresses()
	ports := []corev1.ContainerPort{{ContainerPort: 8080}, {ContainerPort: 8081}}
	one, forget, err := a.open("10.245.0.1", ports)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.open("10.245.0.2", ports); err != nil {
		t.Fatal(err)
	}
	of := func(host string) int {
		at, _ := a.Lookup(host, 8080)
		return at
	}
	if of("10.245.0.1") != one[8080] || of("10.245.0.2") == 0 || of("10.245.0.1") == of("10.245.0.2") {
		t.Errorf("both are told that port 8080 is %d and %d", of("10.245.0.1"), of("10.245.0.2"))
	}
	// It is started again before its former life has forgotten its ports.
	two, _, err := a.open("10.245.0.1", ports)
	if err != nil {
		t.Fatal(err)
	}
	forget()
	if of("10.245.0.1") != two[8080] {
		t.Errorf("port 8080 of a pod's second life is %d, want %d", of("10.245.0.1"), two[8080])
	}
}

func TestTheNextContainerHasThePortOfTheLast(t *testing.T) {
	a := newAddresses()
	ports := []corev1.ContainerPort{{ContainerPort: 53, Protocol: corev1.ProtocolTCP}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP}}
	one, forget, err := a.open("10.245.0.1", ports)
	if err != nil {
		t.Fatal(err)
	}
	forget()
	two, forget, err := a.open("10.245.0.2", ports)
	if err != nil {
		t.Fatal(err)
	}
	defer forget()
	if one[53] != two[53] {
		t.Errorf("port 53 is %d, it was %d for the pod before it", two[53], one[53])
	}
}

func TestAnAddressThatIsHeldIsNoPods(t *testing.T) {
	a := newAddresses()
	a.Hold("10.245.0.1", 443, 7000)
	if got := a.take("10.245.0.1"); got == "10.245.0.1" {
		t.Error("a pod that wanted it got it")
	}
	if got := a.take(""); got == "10.245.0.1" {
		t.Error("a pod that wanted any got it")
	}
	if at, known := a.Lookup("10.245.0.1", 443); !known || at != 7000 {
		t.Errorf("it leads to %d, %t", at, known)
	}
}
