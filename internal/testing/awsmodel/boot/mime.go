package boot

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"
)

// A part is one document of user data.
type part struct {
	kind string // media type
	body string
}

const shellScript = "text/x-shellscript"

// maxUserData bounds what is unpacked; EC2 itself stops at 16 KiB before packing.
const maxUserData = 1 << 20

// parts splits user data as cloud-init does: a MIME archive into its documents, anything else into one document whose
// kind its first line tells.
func parts(userData string) ([]part, error) {
	userData, err := unpack(userData)
	if err != nil {
		return nil, err
	}
	text := strings.TrimLeft(userData, " \t\r\n")
	if !strings.HasPrefix(text, "MIME-Version:") && !strings.HasPrefix(text, "Content-Type:") {
		return []part{{kind: kindOf(text), body: userData}}, nil
	}
	msg, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("malformed MIME header: %w", err)
	}
	kind, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(kind, "multipart/") {
		return nil, fmt.Errorf("user data is MIME but not multipart: %q", msg.Header.Get("Content-Type"))
	}
	var out []part
	r := multipart.NewReader(msg.Body, params["boundary"])
	for {
		p, err := r.NextRawPart()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("malformed MIME part: %w", err)
		}
		body, err := io.ReadAll(io.LimitReader(p, maxUserData))
		if err != nil {
			return nil, fmt.Errorf("malformed MIME part: %w", err)
		}
		kind, _, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err != nil {
			kind = kindOf(string(body))
		}
		out = append(out, part{kind: kind, body: string(body)})
	}
}

func unpack(userData string) (string, error) {
	if !strings.HasPrefix(userData, "\x1f\x8b") {
		return userData, nil
	}
	r, err := gzip.NewReader(bytes.NewReader([]byte(userData)))
	if err != nil {
		return "", fmt.Errorf("gzip: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(r, maxUserData))
	if err != nil {
		return "", fmt.Errorf("gzip: %w", err)
	}
	return string(out), nil
}

func kindOf(text string) string {
	if strings.HasPrefix(text, "#!") {
		return shellScript
	}
	return "text/plain"
}
