package cli

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/history/replay"
)

// marketColumns are the columns of the table that --market reads, each with the function that reads a field.
var marketColumns = map[string]func(r *replay.Rate, text string) error{
	"type":          func(r *replay.Rate, text string) error { r.Type = text; return nil },
	"zone":          func(r *replay.Rate, text string) error { r.Zone = text; return nil },
	"capacity_type": func(r *replay.Rate, text string) error { return parseCapacityType(&r.CapacityType, text) },
	"interrupted":   func(r *replay.Rate, text string) error { return parsePart(&r.Interrupted, text) },
	"sold_out":      func(r *replay.Rate, text string) error { return parsePart(&r.SoldOut, text) },
}

// readMarket reads a table of how often spot machines are interrupted, and how often nothing is to be had.
func readMarket(file string) (replay.Market, error) {
	text, err := readRegular(file)
	if err != nil {
		return nil, err
	}
	return parseMarket(file, text)
}

// parseMarket reads the table from CSV. An empty field or "*" means any; the capacity type is spot if it is not
// given.
func parseMarket(file string, text []byte) (replay.Market, error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	r.TrimLeadingSpace = true
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s:1: %w; the first line names the columns", file, err)
	}
	for i, name := range header {
		if header[i] = strings.ToLower(strings.TrimSpace(name)); marketColumns[header[i]] == nil ||
			slices.Contains(header[:i], header[i]) {
			return nil, fmt.Errorf("%s:1: column %q; use each of %s once", file, name, strings.Join(sortedKeys(marketColumns), ", "))
		}
	}
	var out replay.Market
	for {
		fields, err := r.Read()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		rate := replay.Rate{CapacityType: v1.CapacityTypeSpot}
		for i, field := range fields {
			if field = strings.TrimSpace(field); field == "" || field == "*" {
				continue
			}
			if err := marketColumns[header[i]](&rate, field); err != nil {
				line, _ := r.FieldPos(i)
				return nil, fmt.Errorf("%s:%d: %s %q: %w", file, line, header[i], field, err)
			}
		}
		out = append(out, rate)
	}
}

// parseCapacityType reads spot or on-demand.
func parseCapacityType(to *string, text string) error {
	if text != v1.CapacityTypeSpot && text != v1.CapacityTypeOnDemand {
		return errors.New("write spot or on-demand")
	}
	*to = text
	return nil
}

// parsePart reads a part of one, such as 0.05 or 5%.
func parsePart(to *float64, text string) error {
	number, percent := strings.CutSuffix(text, "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f <= 1) {
		return errors.New("write a part of the whole, such as 5% or 0.05")
	}
	*to = f
	return nil
}
