// Package costs keeps a ledger in ConfigMaps, and reads it.
//
// The ConfigMaps of a ledger are numbered from 0 and are a ring: each holds a book of some hours, and when one is full the next one,
// which has the oldest hours, is overwritten. So a ledger never has more than Slots × MostBytes.
package costs

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/core/ledger"
)

const (
	// Slots is how many ConfigMaps a ledger has.
	Slots = 20
	// MostBytes is the most that one of them holds. The API server accepts 1 MiB.
	MostBytes = 1_000_000

	bookKey     = "ledger.json.gz"
	sequenceKey = "sequence" // counts the books
)

// A Keeper keeps the ledger of one cluster. One process writes at a time; a write after that of another one fails with a conflict.
type Keeper struct {
	client   client.Client
	of       client.ObjectKey // of the ConfigMaps, without their number
	sequence int
	into     *corev1.ConfigMap // as last read or written; nil for a slot that was not read yet
}

// NewKeeper returns a keeper that has not read anything.
func NewKeeper(c client.Client, of client.ObjectKey) *Keeper { return &Keeper{client: c, of: of} }

// Name returns the name of a ConfigMap of a ledger.
func Name(ledger string, slot int) string { return fmt.Sprintf("%s-%d", ledger, slot) }

// slot reads the ConfigMap with a number.
func (k *Keeper) slot(ctx context.Context, n int) (*corev1.ConfigMap, error) {
	c := &corev1.ConfigMap{}
	err := k.client.Get(ctx, client.ObjectKey{Namespace: k.of.Namespace, Name: Name(k.of.Name, n)}, c)
	return c, err
}

// Load returns the newest book, nil if there is none. The error is a TornError if the book cannot be read. Later
// writes go into the ConfigMap that was found.
func (k *Keeper) Load(ctx context.Context) (*ledger.File, error) {
	k.sequence, k.into = 0, nil
	for n := range Slots {
		c, err := k.slot(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		if at := sequenceOf(c); at > 0 && at >= k.sequence || k.into == nil {
			k.sequence, k.into = at, c
		}
	}
	if k.sequence == 0 {
		return nil, nil
	}
	f, err := unpack(k.into)
	if err == nil {
		_, err = f.Book()
	}
	if err != nil {
		return nil, &TornError{fmt.Errorf("ConfigMap %s/%s: %w", k.into.Namespace, k.into.Name, err)}
	}
	return f, nil
}

// A TornError says that a book exists but cannot be read.
type TornError struct{ error }

// sequenceOf returns the number of the book in a ConfigMap, 0 if it holds none.
func sequenceOf(c *corev1.ConfigMap) int {
	n, err := strconv.Atoi(c.Data[sequenceKey])
	if err != nil || n < 0 || len(c.BinaryData[bookKey]) == 0 {
		return 0
	}
	return n
}

// Write writes a packed book into the present ConfigMap, over its last version. It fails with a conflict if another
// process wrote it since.
func (k *Keeper) Write(ctx context.Context, packed []byte) error {
	k.sequence = max(k.sequence, 1)
	if k.into == nil || k.into.Name != Name(k.of.Name, k.sequence%Slots) {
		c, err := k.slot(ctx, k.sequence%Slots)
		if err != nil {
			return fmt.Errorf("write the ledger: %w", err)
		}
		k.into = c
	}
	next := k.into.DeepCopy()
	next.Data, next.BinaryData = map[string]string{sequenceKey: strconv.Itoa(k.sequence)}, map[string][]byte{bookKey: packed}
	if err := k.client.Update(ctx, next); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	k.into = next
	return nil
}

// Turn makes Write go to the next ConfigMap from now on.
func (k *Keeper) Turn() { k.sequence++ }

// Pack compresses a book.
func Pack(f *ledger.File) ([]byte, error) {
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(zip).Encode(f); err != nil {
		return nil, err
	}
	err = zip.Close()
	return packed.Bytes(), err
}

// unpack reads the book of a ConfigMap.
func unpack(c *corev1.ConfigMap) (*ledger.File, error) {
	text, err := gzip.NewReader(bytes.NewReader(c.BinaryData[bookKey]))
	f := &ledger.File{}
	if err == nil {
		err = json.NewDecoder(text).Decode(f)
	}
	return f, err
}

// Books returns the books in ConfigMaps, the oldest first, and until when the newest of them goes. ConfigMaps without
// a book are left out; those that cannot be read are too, with an error in torn for each.
func Books(all []corev1.ConfigMap) (books []*ledger.Book, until int64, torn []error) {
	all = slices.DeleteFunc(slices.Clone(all), func(c corev1.ConfigMap) bool { return sequenceOf(&c) == 0 })
	slices.SortFunc(all, func(a, b corev1.ConfigMap) int { return cmp.Compare(sequenceOf(&a), sequenceOf(&b)) })
	for i := range all {
		f, err := unpack(&all[i])
		var b *ledger.Book
		if err == nil {
			b, err = f.Book()
		}
		if err != nil {
			torn = append(torn, fmt.Errorf("ConfigMap %s/%s: %w", all[i].Namespace, all[i].Name, err))
			continue
		}
		books, until = append(books, b), max(until, f.Until)
	}
	return books, until, torn
}
