package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// XML returns the members of one of the SDK's output structs as XML elements, without a root. Absent members (nil) are
// left out, empty lists are written as empty elements.
func (s Style) XML(v any) []byte {
	var b bytes.Buffer
	s.fields(&b, reflect.Indirect(reflect.ValueOf(v)))
	return b.Bytes()
}

func (s Style) fields(b *bytes.Buffer, v reflect.Value) {
	if !v.IsValid() {
		return
	}
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Name == "ResultMetadata" {
			continue
		}
		s.element(b, s.responseName(t, f.Name), s.itemName(t, f.Name), v.Field(i))
	}
}

func (s Style) element(b *bytes.Buffer, name, item string, v reflect.Value) {
	if absent(v) {
		return
	}
	v = reflect.Indirect(v)
	switch {
	case s.flat && v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		for i := range v.Len() {
			s.element(b, name, "", v.Index(i))
		}
		return
	case v.Kind() == reflect.Map:
		s.entries(b, name, v)
		return
	}
	b.WriteByte('<')
	b.WriteString(name)
	b.WriteByte('>')
	switch {
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		for i := range v.Len() {
			s.element(b, item, s.item, v.Index(i))
		}
	case v.Kind() == reflect.Struct && v.Type() != timeType:
		s.fields(b, v)
	default:
		_ = xml.EscapeText(b, []byte(text(v))) // a buffer never fails
	}
	b.WriteString("</")
	b.WriteString(name)
	b.WriteByte('>')
}

// entries writes a map as its names and values, in order.
func (s Style) entries(b *bytes.Buffer, name string, v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	for _, key := range keys {
		fmt.Fprintf(b, "<%s>", name)
		s.element(b, "Name", "", key)
		s.element(b, "Value", "", v.MapIndex(key))
		fmt.Fprintf(b, "</%s>", name)
	}
}

// absent says that a member is not there: a nil pointer or list, or an enumeration's empty value.
func absent(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return v.IsNil()
	case reflect.String:
		return v.Len() == 0
	}
	return false
}

func text(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int32, reflect.Int64, reflect.Int:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Float64, reflect.Float32:
		return strconv.FormatFloat(v.Float(), 'f', -1, v.Type().Bits())
	case reflect.Slice:
		return base64.StdEncoding.EncodeToString(v.Bytes())
	}
	if v.Type() == timeType {
		return v.Interface().(time.Time).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	return v.String()
}

// JSON returns one of the SDK's output structs as a JSON object. Times are seconds since the epoch.
func (s Style) JSON(v any) ([]byte, error) {
	return json.Marshal(s.tree(reflect.ValueOf(v)))
}

func (s Style) tree(v reflect.Value) any {
	v = reflect.Indirect(v)
	switch {
	case !v.IsValid():
		return struct{}{}
	case v.Type() == timeType:
		return math.Round(float64(v.Interface().(time.Time).UnixMilli())) / 1000
	case v.Kind() == reflect.Struct:
		out := map[string]any{}
		t := v.Type()
		for i := range t.NumField() {
			f := t.Field(i)
			if f.IsExported() && f.Name != "ResultMetadata" && !absent(v.Field(i)) {
				out[s.responseName(t, f.Name)] = s.tree(v.Field(i))
			}
		}
		return out
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = s.tree(v.Index(i))
		}
		return out
	case v.Kind() == reflect.Map:
		out := map[string]any{}
		for _, k := range v.MapKeys() {
			out[k.String()] = s.tree(v.MapIndex(k))
		}
		return out
	}
	return v.Interface()
}

// DecodeJSON reads a JSON request into a pointer to one of the SDK's input structs.
func (s Style) DecodeJSON(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return &ParameterError{"SerializationException", "", err.Error()}
	}
	return nil
}
