package boot

import (
	"fmt"
	"strings"
)

// commands splits a shell script into simple commands and those into words, with quotes and line continuations resolved
// and variables that the script itself assigns replaced. It understands what bootstrap scripts use, not all of the shell:
// no control flow, no substitution of commands.
func commands(script string) ([][]string, error) {
	l := &lexer{text: strings.ReplaceAll(script, "\r\n", "\n"), vars: map[string]string{}}
	for l.pos < len(l.text) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.endCommand()
	return l.out, nil
}

type lexer struct {
	text string
	pos  int
	vars map[string]string
	word strings.Builder
	has  bool // a word has begun, even if it is empty
	cmd  []string
	out  [][]string
}

func (l *lexer) next() error {
	c := l.text[l.pos]
	l.pos++
	switch {
	case c == '\\':
		if l.pos < len(l.text) {
			if l.text[l.pos] != '\n' {
				l.add(l.text[l.pos])
			}
			l.pos++
		}
	case c == '\'':
		end := strings.IndexByte(l.text[l.pos:], '\'')
		if end < 0 {
			return fmt.Errorf("unterminated single quote")
		}
		l.word.WriteString(l.text[l.pos : l.pos+end])
		l.has = true
		l.pos += end + 1
	case c == '"':
		return l.double()
	case c == '$':
		l.variable()
	case c == '#' && !l.has:
		if end := strings.IndexByte(l.text[l.pos:], '\n'); end >= 0 {
			l.pos += end
		} else {
			l.pos = len(l.text)
		}
	case c == '\n' || c == ';' || c == '&' || c == '|':
		l.endCommand()
	case c == ' ' || c == '\t' || c == '\r':
		l.endWord()
	default:
		l.add(c)
	}
	return nil
}

func (l *lexer) double() error {
	l.has = true
	for l.pos < len(l.text) {
		c := l.text[l.pos]
		l.pos++
		switch {
		case c == '"':
			return nil
		case c == '\\' && l.pos < len(l.text) && strings.IndexByte("\"\\$`\n", l.text[l.pos]) >= 0:
			if l.text[l.pos] != '\n' {
				l.word.WriteByte(l.text[l.pos])
			}
			l.pos++
		case c == '$':
			l.variable()
		default:
			l.word.WriteByte(c)
		}
	}
	return fmt.Errorf("unterminated double quote")
}

func (l *lexer) variable() {
	rest := l.text[l.pos:]
	name, skip := "", 0
	if strings.HasPrefix(rest, "{") {
		if end := strings.IndexByte(rest, '}'); end > 0 {
			name, skip = rest[1:end], end+1
		}
	} else {
		for skip < len(rest) && isName(rest[skip]) {
			skip++
		}
		name = rest[:skip]
	}
	if name == "" {
		l.add('$')
		return
	}
	l.pos += skip
	if v := l.vars[name]; v != "" {
		l.word.WriteString(v)
		l.has = true
	}
}

func isName(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (l *lexer) add(c byte) {
	l.word.WriteByte(c)
	l.has = true
}

func (l *lexer) endWord() {
	if l.has {
		l.cmd = append(l.cmd, l.word.String())
	}
	l.word.Reset()
	l.has = false
}

func (l *lexer) endCommand() {
	l.endWord()
	for len(l.cmd) > 0 && l.cmd[0] == "export" {
		l.cmd = l.cmd[1:]
	}
	assigned := 0
	for _, w := range l.cmd {
		name, value, ok := strings.Cut(w, "=")
		if !ok || name == "" || strings.IndexFunc(name, func(r rune) bool { return r > 127 || !isName(byte(r)) }) >= 0 {
			break
		}
		l.vars[name] = value
		assigned++
	}
	if cmd := l.cmd[assigned:]; len(cmd) > 0 {
		l.out = append(l.out, cmd)
	}
	l.cmd = nil
}

// fields splits one line of already unquoted text into words, honouring double quotes, as the kubelet's launcher does.
func fields(text string) ([]string, error) {
	cmds, err := commands(strings.ReplaceAll(text, "\n", " "))
	if err != nil || len(cmds) == 0 {
		return nil, err
	}
	var out []string
	for _, c := range cmds {
		out = append(out, c...)
	}
	return out, nil
}
