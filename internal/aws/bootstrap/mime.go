package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"slices"
	"strings"
)

// Content types of the parts of user data that Amazon Linux reads.
const (
	shellPart      = `text/x-shellscript; charset="us-ascii"`
	nodeConfigPart = `application/node.eks.aws`
)

// A part is one piece of a multi-part document. contentType is followed by the line that names the body's encoding, if any.
type part struct{ contentType, body string }

// isMIME reports whether user data is a multi-part document already; either header may come first.
func isMIME(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, "MIME-Version:") || strings.HasPrefix(text, "Content-Type:")
}

// parseMIME takes a multi-part document apart.
func parseMIME(text string) ([]part, error) {
	message, err := mail.ReadMessage(strings.NewReader(strings.TrimSpace(text)))
	if err != nil {
		return nil, fmt.Errorf("user data is not a valid MIME document: %w", err)
	}
	mediaType, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("user data has no valid content type: %w", err)
	}
	if !strings.HasPrefix(mediaType, "multipart/") {
		return nil, fmt.Errorf("user data has content type %s; only multipart documents can be merged", mediaType)
	}
	var parts []part
	reader := multipart.NewReader(message.Body, params["boundary"])
	for {
		p, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("user data is not a valid MIME document: %w", err)
		}
		body := &bytes.Buffer{}
		if _, err := body.ReadFrom(p); err != nil {
			return nil, fmt.Errorf("user data is not a valid MIME document: %w", err)
		}
		header := p.Header.Get("Content-Type")
		if encoding := p.Header.Get("Content-Transfer-Encoding"); encoding != "" {
			header += "\nContent-Transfer-Encoding: " + encoding
		}
		parts = append(parts, part{header, body.String()})
	}
}

// writeMIME returns a multi-part document. It removes carriage returns, because shells would read them as text.
func writeMIME(parts []part) string {
	var b strings.Builder
	border := boundary(parts)
	fmt.Fprintf(&b, "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=%q\n\n", border)
	for _, p := range parts {
		fmt.Fprintf(&b, "--%s\nContent-Type: %s\n\n%s\n", border, p.contentType, strings.TrimRight(p.body, "\r\n"))
	}
	fmt.Fprintf(&b, "--%s--\n", border)
	return strings.ReplaceAll(b.String(), "\r", "")
}

// boundary returns the line between parts: the same for all documents, longer only if a part contains such a line.
func boundary(parts []part) string {
	border := "//"
	for slices.ContainsFunc(parts, func(p part) bool { return strings.Contains("\n"+p.body, "\n--"+border) }) {
		border += "/"
	}
	return border
}
