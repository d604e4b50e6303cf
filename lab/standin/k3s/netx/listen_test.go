package netx

import (
	"strings"
	"testing"
)

func TestTwoListenersShareAPort(t *testing.T) {
	first, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	second, err := Listen(t.Context(), first.Addr().String())
	if err != nil {
		t.Fatalf("a second process would fail here, k3s's does not: %v", err)
	}
	_ = second.Close()
}

func TestTheDefaultRouteWithTheLowestMetricIsTaken(t *testing.T) {
	table := "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" +
		"eth1\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n" +
		"eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n" +
		"eth2\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
	if got, err := defaultRoute(strings.NewReader(table)); err != nil || got != "eth0" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := defaultRoute(strings.NewReader("")); err == nil {
		t.Error("no route is no error")
	}
}
