package wire

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A ParameterError says which parameter of a request is not understood. Code is AWS's code for it.
type ParameterError struct {
	Code, Parameter, Message string
}

func (e *ParameterError) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// maxDepth bounds the nesting of a parameter's name; EC2's deepest is nine.
const maxDepth = 24

// DecodeQuery reads the parameters of a Query request into a pointer to one of the SDK's input structs. A parameter that
// the shape does not have is refused, as AWS refuses it.
func (s Style) DecodeQuery(form url.Values, into any) error {
	root := &param{}
	for _, name := range slices.Sorted(maps.Keys(form)) {
		if name == "Action" || name == "Version" || strings.HasPrefix(name, "X-Amz-") || len(form[name]) == 0 {
			continue
		}
		if err := root.put(name, form[name][0]); err != nil {
			return err
		}
	}
	return s.bind(root, reflect.ValueOf(into).Elem(), "")
}

// A param is a node of the tree that the dotted names of a Query request spell.
type param struct {
	value string
	kids  map[string]*param
}

func (p *param) put(name, value string) error {
	parts := strings.Split(name, ".")
	if len(parts) > maxDepth {
		return &ParameterError{"InvalidParameter", name, "a parameter's name is nested too deeply"}
	}
	for _, part := range parts {
		if p.kids == nil {
			p.kids = map[string]*param{}
		}
		if p.kids[part] == nil {
			p.kids[part] = &param{}
		}
		p = p.kids[part]
	}
	p.value = value
	return nil
}

var timeType = reflect.TypeFor[time.Time]()

func (s Style) bind(p *param, into reflect.Value, name string) error {
	switch {
	case into.Kind() == reflect.Pointer:
		elem := reflect.New(into.Type().Elem())
		if err := s.bind(p, elem.Elem(), name); err != nil {
			return err
		}
		into.Set(elem)
		return nil
	case into.Type() == timeType:
		t, err := time.Parse(time.RFC3339Nano, p.value)
		if err != nil {
			return invalid(name, p.value, "a time")
		}
		into.Set(reflect.ValueOf(t))
		return nil
	case into.Kind() == reflect.Struct:
		return s.bindStruct(p, into, name)
	case into.Kind() == reflect.Slice && into.Type().Elem().Kind() == reflect.Uint8:
		raw, err := base64.StdEncoding.DecodeString(p.value)
		if err != nil {
			return invalid(name, p.value, "base64")
		}
		into.SetBytes(raw)
		return nil
	case into.Kind() == reflect.Slice:
		return s.bindList(p, into, name)
	case into.Kind() == reflect.Map:
		return s.bindMap(p, into, name)
	}
	if len(p.kids) > 0 {
		return unknown(name + "." + slices.Sorted(maps.Keys(p.kids))[0])
	}
	return bindScalar(p.value, into, name)
}

func (s Style) bindStruct(p *param, into reflect.Value, name string) error {
	t := into.Type()
	seen := 0
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Name == "ResultMetadata" {
			continue
		}
		key := s.requestName(t, f.Name)
		kid, ok := p.kids[key]
		if !ok {
			continue
		}
		seen++
		if err := s.bind(kid, into.Field(i), join(name, key)); err != nil {
			return err
		}
	}
	if seen == len(p.kids) {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(p.kids)) {
		if !s.has(t, key) {
			return unknown(join(name, key))
		}
	}
	return nil
}

func (s Style) has(t reflect.Type, key string) bool {
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && s.requestName(t, f.Name) == key {
			return true
		}
	}
	return false
}

func (s Style) bindList(p *param, into reflect.Value, name string) error {
	if m, ok := p.kids["member"]; ok && s.item == "member" {
		p = m
	}
	var order []int
	for key := range p.kids {
		n, err := strconv.Atoi(key)
		if err != nil || n < 0 {
			return unknown(join(name, key))
		}
		order = append(order, n)
	}
	slices.Sort(order)
	out := reflect.MakeSlice(into.Type(), len(order), len(order))
	for i, n := range order {
		key := strconv.Itoa(n)
		kid, ok := p.kids[key]
		if !ok {
			return unknown(join(name, key)) // written with leading zeros
		}
		if err := s.bind(kid, out.Index(i), join(name, key)); err != nil {
			return err
		}
	}
	into.Set(out)
	return nil
}

// bindMap reads entries such as Attribute.1.Name and Attribute.1.Value.
func (s Style) bindMap(p *param, into reflect.Value, name string) error {
	out := reflect.MakeMap(into.Type())
	for _, n := range slices.Sorted(maps.Keys(p.kids)) {
		entry := p.kids[n].kids
		if len(entry) != 2 || entry["Name"] == nil || entry["Value"] == nil {
			return unknown(join(name, n))
		}
		value := reflect.New(into.Type().Elem()).Elem()
		if err := s.bind(entry["Value"], value, join(name, n)+".Value"); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(entry["Name"].value).Convert(into.Type().Key()), value)
	}
	into.Set(out)
	return nil
}

func bindScalar(value string, into reflect.Value, name string) error {
	switch into.Kind() {
	case reflect.String:
		into.SetString(value)
	case reflect.Bool:
		b, err := strconv.ParseBool(value)
		if err != nil {
			return invalid(name, value, "true or false")
		}
		into.SetBool(b)
	case reflect.Int32, reflect.Int64, reflect.Int:
		n, err := strconv.ParseInt(value, 10, into.Type().Bits())
		if err != nil {
			return invalid(name, value, "an integer")
		}
		into.SetInt(n)
	case reflect.Float64, reflect.Float32:
		f, err := strconv.ParseFloat(value, into.Type().Bits())
		if err != nil {
			return invalid(name, value, "a number")
		}
		into.SetFloat(f)
	default:
		return unknown(name)
	}
	return nil
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

func unknown(name string) error {
	return &ParameterError{"UnknownParameter", name, fmt.Sprintf("The parameter %s is not recognized", name)}
}

func invalid(name, value, want string) error {
	return &ParameterError{"InvalidParameterValue", name,
		fmt.Sprintf("Value (%s) for parameter %s is invalid. Expected %s.", value, name, want)}
}
