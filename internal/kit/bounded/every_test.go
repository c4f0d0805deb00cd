package bounded

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// absurdly sets every quantity in a value to an absurd one, with one item in each list and map, so many levels deep.
func absurdly(v reflect.Value, deep int) {
	if deep == 0 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		absurdly(v.Elem(), deep-1)
	case reflect.Struct:
		if v.Type() == quantityType {
			v.Set(reflect.ValueOf(resource.MustParse("1e40000000")))
			return
		}
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				absurdly(f, deep-1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		absurdly(v.Index(0), deep-1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		absurdly(value, deep-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	}
}

// Every object of Kubernetes' own API comes out with no quantity outside of the limits, wherever it holds one: in a list, behind
// a pointer, in a value of a map.
func TestEveryObjectOfKubernetes(t *testing.T) {
	with := 0
	for kind, goType := range scheme.Scheme.AllKnownTypes() {
		if kind.Version == runtime.APIVersionInternal {
			continue
		}
		filled := reflect.New(goType)
		absurdly(filled.Elem(), 16)
		object := filled.Interface().(runtime.Object)
		if !walk(filled, false) {
			continue
		}
		with++
		if mended := Object(object); walk(reflect.ValueOf(mended), false) {
			t.Errorf("%v keeps a quantity outside of the limits", kind)
		}
	}
	if with < 30 {
		t.Errorf("%d kinds hold quantities; the test reaches too few", with)
	}
	t.Logf("%d kinds hold quantities", with)
}

// A quantity behind an interface is mended too.
func TestAQuantityBehindAnInterface(t *testing.T) {
	held := []any{resource.MustParse("1e40000000")}
	if !walk(reflect.ValueOf(held), true) || walk(reflect.ValueOf(held), false) {
		t.Errorf("%v is not mended", held)
	}
}
