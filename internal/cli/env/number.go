package env

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Int is a flag that takes a whole number of Min to Max.
type Int struct {
	Value    *int
	Min, Max int
}

// Set implements pflag.Value.
func (i Int) Set(text string) error {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < i.Min || n > i.Max {
		return fmt.Errorf("want a whole number of %d to %d", i.Min, i.Max)
	}
	*i.Value = n
	return nil
}

// String implements pflag.Value.
func (i Int) String() string {
	if i.Value == nil {
		return "0"
	}
	return strconv.Itoa(*i.Value)
}

// Type implements pflag.Value.
func (Int) Type() string { return "int" }

// Float is a flag that takes a number of 0 to Max.
type Float struct {
	Value *float64
	Max   float64
}

// Set implements pflag.Value.
func (f Float) Set(text string) error {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > f.Max {
		return fmt.Errorf("want a number of 0 to %g", f.Max)
	}
	*f.Value = v
	return nil
}

// String implements pflag.Value.
func (f Float) String() string {
	if f.Value == nil {
		return "0"
	}
	return strconv.FormatFloat(*f.Value, 'g', -1, 64)
}

// Type implements pflag.Value.
func (Float) Type() string { return "float" }

// Duration is a flag that takes a length of time like 5s of Min to Max.
type Duration struct {
	Value    *time.Duration
	Min, Max time.Duration
}

// Set implements pflag.Value.
func (d Duration) Set(text string) error {
	v, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil || v < d.Min || v > d.Max {
		return fmt.Errorf("want a duration like %s, of %s to %s", d.Max, d.Min, d.Max)
	}
	*d.Value = v
	return nil
}

// String implements pflag.Value.
func (d Duration) String() string {
	if d.Value == nil {
		return "0s"
	}
	return d.Value.String()
}

// Type implements pflag.Value.
func (Duration) Type() string { return "duration" }
