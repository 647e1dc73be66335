// Command porcupine judges one history of conditional appends: porcupine [-seconds N] [-html FILE] HISTORY
//
// It prints one JSON document: the verdict ("Ok", "Illegal", or "Unknown" where the time was too short), how
// many refusals rest on an estimate, and for an illegal history the operations that no order explains.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const mostStuck = 3

type verdict struct {
	Result     porcupine.CheckResult `json:"result"`
	Operations int                   `json:"operations"`
	Parts      int                   `json:"parts"`
	Estimates  int                   `json:"estimates"`
	Stuck      []string              `json:"stuck,omitempty"`
	Seconds    float64               `json:"seconds"`
}

func main() {
	seconds := flag.Float64("seconds", 60, "how long to look for an order; 0 is without end")
	html := flag.String("html", "", "where to draw an illegal history")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	found, err := judge(flag.Arg(0), time.Duration(*seconds*float64(time.Second)), *html)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func judge(path string, timeout time.Duration, html string) (*verdict, error) {
	history, err := load(path)
	if err != nil {
		return nil, err
	}
	operations := history.operations()
	began := time.Now()
	found := &verdict{Operations: len(history.Operations), Parts: len(coupled(operations))}
	for _, op := range history.Operations {
		if op.Refused != nil && op.Refused.Reason == "LOCK" && !op.Refused.Exact {
			found.Estimates++
		}
	}
	found.Result = porcupine.CheckOperationsTimeout(model(), operations, timeout)
	found.Seconds = time.Since(began).Seconds()
	if found.Result != porcupine.Illegal {
		return found, nil
	}
	for _, part := range coupled(operations) {
		result, info := porcupine.CheckOperationsVerbose(model(), part, timeout)
		if result != porcupine.Illegal {
			continue
		}
		found.Stuck = stuck(part, info.PartialLinearizationsOperations()[0])
		if html != "" {
			return found, porcupine.VisualizePath(model(), info, html)
		}
		break
	}
	return found, nil
}

// stuck are the first operations that are missing in the longest order that was found.
func stuck(all []porcupine.Operation, orders [][]porcupine.Operation) []string {
	placed := map[*operation]bool{}
	if len(orders) > 0 {
		longest := slices.MaxFunc(orders, func(a, b []porcupine.Operation) int { return len(a) - len(b) })
		for _, each := range longest {
			placed[each.Input.(*operation)] = true
		}
	}
	left := slices.DeleteFunc(slices.Clone(all), func(each porcupine.Operation) bool {
		return placed[each.Input.(*operation)]
	})
	slices.SortStableFunc(left, func(a, b porcupine.Operation) int {
		if a.Return < b.Return {
			return -1
		}
		return 1
	})
	found := []string{}
	for _, each := range left[:min(len(left), mostStuck)] {
		found = append(found, describe(each.Input.(*operation)))
	}
	return found
}
