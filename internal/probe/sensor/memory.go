package sensor

import (
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/memory"
)

// Memory reads what levels read (R-185-06). The faults name the parts that are
// missing; the reading is nil when both are.
func Memory(r memory.Reader) (*level.Reading, []*Fault) {
	reading, pressure, available := r.Read()
	var faults []*Fault
	if pressure != nil {
		faults = append(faults, faultf(CodeNoPressure, "%v", pressure))
	}
	if available != nil {
		faults = append(faults, faultf(CodeNoMeminfo, "%v", available))
	}
	if len(faults) == 2 {
		return nil, faults
	}
	return &reading, faults
}
