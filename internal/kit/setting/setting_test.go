package setting_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"karpenter.sh/karpenter/internal/kit/setting"
)

type values struct {
	n    int
	d    time.Duration
	b    bool
	s    string
	list []string
}

func read(args string, env ...string) (string, error) {
	v := values{n: 7, d: time.Second, s: "text", list: []string{"a"}}
	vars := map[string]string{}
	for i := 0; i < len(env); i += 2 {
		vars[env[i]] = env[i+1]
	}
	err := setting.Read("test", []setting.Setting{
		setting.Int(&v.n, "the-number", "a number"),
		setting.Duration(&v.d, "the-time", "a time"),
		setting.Bool(&v.b, "the-switch", "a switch"),
		setting.String(&v.s, "the-text", "a text"),
		setting.List(&v.list, "the-list", "a list"),
		setting.Func("the-choice", "red", "red or blue", func(s string) error {
			if s != "red" && s != "blue" {
				return fmt.Errorf("%q is neither red nor blue", s)
			}
			return nil
		}),
	}, strings.Fields(args), func(k string) (string, bool) { s, ok := vars[k]; return s, ok }, io.Discard)
	return fmt.Sprint(v.n, " ", v.d, " ", v.b, " ", v.s, " ", v.list), err
}

func TestRead(t *testing.T) {
	for name, tc := range map[string]struct {
		args string
		env  []string
		want string
		err  string // part of the error, "" for none
	}{
		"nothing given leaves the defaults":              {want: "7 1s false text [a]"},
		"flags win over the environment":                 {args: "--the-number=1", env: []string{"THE_NUMBER", "2"}, want: "1 1s false text [a]"},
		"the environment wins over the default":          {env: []string{"THE_NUMBER", "2", "THE_LIST", "x,y"}, want: "2 1s false text [x y]"},
		"a bare switch is on":                            {args: "--the-switch", want: "7 1s true text [a]"},
		"a switch of another spelling is refused":        {args: "--the-switch=1", err: "neither true nor false"},
		"the environment takes other spellings":          {env: []string{"THE_SWITCH", "T"}, want: "7 1s true text [a]"},
		"a bad number in the environment is an error":    {env: []string{"THE_NUMBER", "many"}, err: `THE_NUMBER: strconv.Atoi: parsing "many": invalid syntax; write a value such as "7", or unset it`},
		"a bad duration in the environment is one too":   {env: []string{"THE_TIME", "x"}, err: "THE_TIME"},
		"and a bad switch":                               {env: []string{"THE_SWITCH", "x"}, err: "THE_SWITCH"},
		"a variable that Kubernetes makes for a Service": {env: []string{"THE_NUMBER", "tcp://10.0.0.1:80"}, want: "7 1s false text [a]"},
		"an empty variable counts as not given":          {env: []string{"THE_NUMBER", "", "THE_TIME", "", "THE_SWITCH", ""}, want: "7 1s false text [a]"},
		"a bad number on the command line is an error":   {args: "--the-number=many", err: "the-number"},
		"a bad choice is an error from anywhere":         {env: []string{"THE_CHOICE", "green"}, err: "THE_CHOICE"},
		"an unknown flag is an error":                    {args: "--unknown=1", err: "unknown"},
		"an argument is an error":                        {args: "extra", err: "extra"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(tc.args, tc.env...)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error = %v, want one that names %q", err, tc.err)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("read %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestGates(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"A=true,B=false":                 "A on, B off",
		" A = T , ,B=0,":                 "A on, B off",
		"A=true,A=false":                 "A on, A off",
		"A":                              `"A" is not of the form Name=true or Name=false`,
		"A=maybe":                        `"A=maybe" is not of the form Name=true or Name=false`,
		"A=true,None=true,never=reaches": "no such gate",
	} {
		var got []string
		err := setting.Gates(text, func(gate string, on bool) error {
			switch {
			case gate == "None":
				return errors.New("no such gate")
			case on:
				got = append(got, gate+" on")
			default:
				got = append(got, gate+" off")
			}
			return nil
		})
		said := strings.Join(got, ", ")
		if err != nil {
			said = err.Error()
		}
		if said != want {
			t.Errorf("%q: %s, want %s", text, said, want)
		}
	}
}
