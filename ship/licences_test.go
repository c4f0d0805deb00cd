package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever adds a module adds its licence: make gen does it.
func TestLicencesAreThoseOfWhatIsLinked(t *testing.T) {
	want, err := job{root: ".."}.licences(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", licenceFile))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what make gen writes (%v)", licenceFile, err)
	}
}

func TestIdentify(t *testing.T) {
	const bsd = "Redistribution and use in source and binary forms,\nwith or without modification"
	for name, tc := range map[string]struct{ text, want string }{
		"Apache's":                {"Apache License\n  Version 2.0, January 2004", "Apache-2.0"},
		"BSD's with two clauses":  {bsd, "BSD-2-Clause"},
		"BSD's with three":        {bsd + "\n * Neither the\nname of Google", "BSD-3-Clause"},
		"MIT's":                   {"Permission is hereby granted, free\nof charge, to any person", "MIT"},
		"two in one text":         {"MIT: Permission is hereby granted, free of charge\nothers: Apache License, Version 2.0", "Apache-2.0 AND MIT"},
		"a notice":                {"This product includes software", ""},
		"one that nobody checked": {"All rights reserved.", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(identify(tc.text), " AND "); got != tc.want {
				t.Errorf("identify = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAModuleWithoutLicenceIsNotShipped(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no file":                    {},
		"a file that nobody checked": {"LICENSE": "All rights reserved."},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := written(map[string]*linkedModule{"m": {"example.com/m", "v1.0.0", files}})
			if err == nil || !strings.Contains(err.Error(), "example.com/m v1.0.0") {
				t.Errorf("error = %v", err)
			}
		})
	}
}
