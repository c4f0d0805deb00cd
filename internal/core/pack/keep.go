package pack

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// A recorded question includes its memory and the known answers, so that a replay in another process gets the same answer. Of answers
// only the questions are recorded: if a replay asks one of them, it searches again in the same way (Answers.again).

// keptMemory is the written form of a Memory.
type keptMemory struct {
	Over    int       `json:"over,omitempty"`
	Cells   []Cell    `json:"cells"`
	Kinds   [][]byte  `json:"kinds"`
	Counts  []int     `json:"counts"`  // per kind: number of items
	Classes []int     `json:"classes"` // per class of the fleet: index of its kind
	Fleet   []Pattern `json:"fleet,omitempty"`
	Room    []float64 `json:"room"`
	Dims    int       `json:"dims"`
	Ratio   float64   `json:"ratio,omitempty"`
}

// MarshalJSON writes a memory.
func (m *Memory) MarshalJSON() ([]byte, error) {
	kinds := slices.Sorted(maps.Keys(m.kinds))
	k := keptMemory{Over: m.over, Cells: m.cells, Fleet: m.fleet, Room: m.room, Dims: m.dims, Ratio: m.ratio}
	for _, kind := range kinds {
		k.Kinds, k.Counts = append(k.Kinds, []byte(kind)), append(k.Counts, m.kinds[kind])
	}
	for _, name := range m.names {
		at, _ := slices.BinarySearch(kinds, name)
		k.Classes = append(k.Classes, at)
	}
	return json.Marshal(k)
}

// UnmarshalJSON reads a memory. It refuses lists whose lengths or indexes do not match, which would panic when they are used.
func (m *Memory) UnmarshalJSON(text []byte) error {
	var k keptMemory
	if err := json.Unmarshal(text, &k); err != nil {
		return err
	}
	if len(k.Kinds) != len(k.Counts) || k.Dims < 1 || len(k.Room) != len(k.Cells)*k.Dims {
		return fmt.Errorf("a memory of %d kinds, %d counts, %d cells and %d prices of room", len(k.Kinds),
			len(k.Counts), len(k.Cells), len(k.Room))
	}
	*m = Memory{over: k.Over, cells: k.Cells, kinds: map[string]int{}, fleet: k.Fleet, room: k.Room, dims: k.Dims, ratio: k.Ratio}
	for i, kind := range k.Kinds {
		m.kinds[string(kind)] = k.Counts[i]
		m.total += k.Counts[i]
	}
	for _, at := range k.Classes {
		if at < 0 || at >= len(k.Kinds) {
			return fmt.Errorf("a memory of %d kinds has no kind %d", len(k.Kinds), at)
		}
		m.names = append(m.names, string(k.Kinds[at]))
	}
	for _, pattern := range k.Fleet {
		for _, it := range pattern.Items {
			if it.Class < 0 || it.Class >= len(m.names) || pattern.Cell < 0 || pattern.Cell >= len(k.Cells) {
				return fmt.Errorf("a memory of %d classes and %d cells has no class %d or no cell %d", len(m.names),
					len(k.Cells), it.Class, pattern.Cell)
			}
		}
	}
	return nil
}

// MarshalJSON writes the digests of the questions, without the answers.
func (a Answers) MarshalJSON() ([]byte, error) {
	out := make([]string, len(a))
	for i := range a {
		out[i] = hex.EncodeToString(a[i].question[:])
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads digests of questions. Their answers are not known (answer.result is nil).
func (a *Answers) UnmarshalJSON(text []byte) error {
	var list []string
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	*a = nil
	for _, x := range list {
		question, err := hex.DecodeString(x)
		if err != nil || len(question) != sha256.Size {
			return fmt.Errorf("%q is no digest of a question", x)
		}
		*a = append(*a, answer{question: [sha256.Size]byte(question)})
	}
	return nil
}

// again answers a question that was answered when the record was made, but whose answer the record does not have. It searches without
// memory, known answers and meter, and reports no work, as for a known answer. For other questions it returns nil.
func (a Answers) again(question [sha256.Size]byte, o Options, search func(Options) *Result) *Result {
	if !slices.ContainsFunc(a, func(x answer) bool { return x.question == question && x.result == nil }) {
		return nil
	}
	o.Memory, o.Known, o.Meter = nil, nil, nil
	out := search(o)
	out.Work, out.Known = 0, a
	return out
}
