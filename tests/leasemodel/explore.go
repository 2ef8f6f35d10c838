package leasemodel

import (
	"fmt"
	"slices"
	"strings"
)

// graph is every state that can be reached, each with the step by which a shortest schedule gets to it.
type graph[S comparable, L fmt.Stringer] struct {
	states   []S
	parents  []int32
	steps    []L
	from, to []int32 // the transitions
}

// violation is a schedule that ends where it must not.
type violation[S comparable, L fmt.Stringer] struct {
	reason string
	states []S // one more than there are steps
	steps  []L
}

// explore visits all states breadth first, so that the first violation found is one of the shortest. It ends with an
// error when there are more than limit states.
func explore[S comparable, L fmt.Stringer](
	initial S, limit int, next func(S, func(L, S)), check func(S, L, S) string,
) (*graph[S, L], *violation[S, L], error) {
	g := &graph[S, L]{states: []S{initial}, parents: []int32{-1}, steps: make([]L, 1)}
	seen := map[S]int32{initial: 0}

	var found *violation[S, L]

	for at := 0; at < len(g.states) && found == nil; at++ {
		if len(g.states) > limit {
			return g, nil, fmt.Errorf("more than %d states", limit)
		}

		from := g.states[at]

		next(from, func(step L, to S) {
			n, known := seen[to]
			if !known {
				n = int32(len(g.states))
				seen[to] = n
				g.states = append(g.states, to)
				g.parents = append(g.parents, int32(at))
				g.steps = append(g.steps, step)
			}

			g.from, g.to = append(g.from, int32(at)), append(g.to, n)

			if reason := check(from, step, to); reason != "" && found == nil {
				found = g.schedule(int32(at), reason)
				found.steps = append(found.steps, step)
				found.states = append(found.states, to)
			}
		})
	}

	return g, found, nil
}

// schedule is a shortest one from the start to a state.
func (g *graph[S, L]) schedule(at int32, reason string) *violation[S, L] {
	v := &violation[S, L]{reason: reason}

	for ; at >= 0; at = g.parents[at] {
		v.states = append(v.states, g.states[at])

		if g.parents[at] >= 0 {
			v.steps = append(v.steps, g.steps[at])
		}
	}

	slices.Reverse(v.states)
	slices.Reverse(v.steps)

	return v
}

// stuck returns a shortest schedule to a state from which no state that satisfies goal can be reached, or nil.
func (g *graph[S, L]) stuck(goal func(S) bool, reason string) *violation[S, L] {
	first := make([]int32, len(g.states)+1) // the transitions into state i are into[first[i]:first[i+1]]
	for _, to := range g.to {
		first[to+1]++
	}

	for i := range g.states {
		first[i+1] += first[i]
	}

	into, filled := make([]int32, len(g.to)), slices.Clone(first)
	for i, to := range g.to {
		into[filled[to]] = g.from[i]
		filled[to]++
	}

	reaches := make([]bool, len(g.states))

	var queue []int32

	reach := func(at int32) {
		if !reaches[at] {
			reaches[at] = true

			queue = append(queue, at)
		}
	}

	for i, s := range g.states {
		if goal(s) {
			reach(int32(i))
		}
	}

	for ; len(queue) > 0; queue = queue[1:] {
		for _, from := range into[first[queue[0]]:first[queue[0]+1]] {
			reach(from)
		}
	}

	if at := slices.Index(reaches, false); at >= 0 {
		return g.schedule(int32(at), reason)
	}

	return nil
}

// because reports whether the reason ends like this; it may begin with the event.
func (v *violation[S, L]) because(reason string) bool {
	return strings.HasSuffix(v.reason, reason)
}

// String is the schedule, one step to a line with the state after it.
func (v *violation[S, L]) String() string {
	var b strings.Builder

	fmt.Fprintf(&b, "%s, after this schedule:\n", v.reason)

	for i, step := range v.steps {
		fmt.Fprintf(&b, "%3d. %-46s %v\n", i+1, step, v.states[i+1])
	}

	return b.String()
}
