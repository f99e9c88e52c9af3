package gitsync

import (
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"golang.org/x/crypto/ssh"

	"github.com/openrlc/rlc"
)

// sign puts an SSH signature on a commit, in the form that git commit -S writes
// with gpg.format=ssh (OpenSSH's PROTOCOL.sshsig, namespace "git", SHA-512).
// Without a key the commit stays as it is. The files are read anew each time.
func (r *Repo) sign(v *view, c *object.Commit) error {
	if r.cfg.SigningKeyFile == "" {
		return nil
	}
	key, err := r.signer()
	if err != nil {
		return err
	}
	o := v.store.NewEncodedObject()
	if err := c.EncodeWithoutSignature(o); err != nil {
		return err
	}
	text, err := content(o)
	if err != nil {
		return err
	}
	c.PGPSignature, err = sshsig(key, "git", text)
	return err
}

func content(o plumbing.EncodedObject) (data []byte, err error) {
	in, err := o.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	data = make([]byte, o.Size())
	for n := 0; n < len(data); {
		m, err := in.Read(data[n:])
		if n += m; err != nil && n < len(data) {
			return nil, err
		}
	}
	return data, nil
}

func (r *Repo) signer() (ssh.Signer, error) {
	data, err := os.ReadFile(r.cfg.SigningKeyFile)
	if err != nil {
		return nil, fmt.Errorf("%w: signing key: %w", rlc.ErrInvalid, err)
	}
	key, err := ssh.ParsePrivateKey(data)
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) && r.cfg.SigningPassphraseFile != "" {
		var phrase []byte
		if phrase, err = os.ReadFile(r.cfg.SigningPassphraseFile); err == nil {
			key, err = ssh.ParsePrivateKeyWithPassphrase(data, []byte(strings.TrimRight(string(phrase), "\r\n")))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: signing key: it cannot be read as an SSH private key", rlc.ErrInvalid)
	}
	return key, nil
}

// sshsig signs a text and armours the signature.
func sshsig(key ssh.Signer, namespace string, text []byte) (string, error) {
	sum := sha512.Sum512(text)
	toSign := append([]byte("SSHSIG"), ssh.Marshal(struct{ Namespace, Reserved, Hash, Sum string }{namespace, "", "sha512", string(sum[:])})...)
	var signature *ssh.Signature
	var err error
	if many, ok := key.(ssh.AlgorithmSigner); ok && key.PublicKey().Type() == ssh.KeyAlgoRSA {
		signature, err = many.SignWithAlgorithm(rand.Reader, toSign, ssh.KeyAlgoRSASHA512) // ssh-rsa's SHA-1 is refused
	} else {
		signature, err = key.Sign(rand.Reader, toSign)
	}
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	blob := append([]byte("SSHSIG"), ssh.Marshal(struct {
		Version                                      uint32
		PublicKey, Namespace, Reserved, Hash, Signed string
	}{1, string(key.PublicKey().Marshal()), namespace, "", "sha512", string(ssh.Marshal(signature))})...)
	var b strings.Builder
	b.WriteString("-----BEGIN SSH SIGNATURE-----\n")
	for line := base64.StdEncoding.EncodeToString(blob); line != ""; {
		n := min(len(line), 70)
		b.WriteString(line[:n] + "\n")
		line = line[n:]
	}
	b.WriteString("-----END SSH SIGNATURE-----\n")
	return b.String(), nil
}
