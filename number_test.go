package rlc

import "testing"

// No number that people read has an exponent, a hyphen for a minus or more than
// three digits in a row.
func TestNumbersAreWrittenForPeople(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 10000: "10,000", 1234567.25: "1,234,567.25",
		0.05: "0.05", -3.5: "−3.5", -1000: "−1,000", MaxRate: "100,000,000,000", 1e-7: "0.0000001",
	} {
		if got := Number(n); got != want {
			t.Errorf("%v is written %q, want %q", n, got, want)
		}
	}
	if got := Number(Burst(6000)) + " " + Number(Rate(1840)); got != "6,000 1,840" {
		t.Errorf("a burst and a rate are written %q", got)
	}
	if got := Plural(12345, "quota"); got != "12,345 quotas" {
		t.Errorf("many things are written %q", got)
	}
	rate := Rate(1e6)
	if got := (Override{Action: "limit", Rate: &rate}).Does(); got != "held to 1,000,000 req/s" {
		t.Errorf("an override does %q", got)
	}
}
