// HTTP/3 client on unmodified quic-go, driven by interop/run: one task as JSON in the first argument, one JSON line on stdout
// (interop/mendinterop/task.py describes both). Unknown version: quic-go supports QUIC v2 (RFC 9369), the server does not.
// Key update: quic-go starts one by itself after its first 100 packets.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// Task has one connection per round; the paths of a round are requested in parallel.
type Task struct {
	Host           string     `json:"host"`
	Address        string     `json:"address"`
	Port           int        `json:"port"`
	CA             string     `json:"ca"`
	Rounds         [][]string `json:"rounds"`
	EarlyData      bool       `json:"early_data"`
	UnknownVersion bool       `json:"unknown_version"`
	LingerMS       int        `json:"linger_ms"`
}

// Response is one response, with its body counted and hashed.
type Response struct {
	Path   string `json:"path"`
	Status int    `json:"status"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Round is one connection.
type Round struct {
	ALPN      string     `json:"alpn"`
	Resumed   bool       `json:"resumed"`
	EarlyData bool       `json:"early_data"`
	Responses []Response `json:"responses"`
}

// Report is the program's output.
type Report struct {
	Rounds []Round `json:"rounds"`
	Error  *string `json:"error"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: interop-quic-go TASK-AS-JSON")
		os.Exit(2)
	}
	var task Task
	report := Report{Rounds: []Round{}}
	err := json.Unmarshal([]byte(os.Args[1]), &task)
	if err == nil {
		err = run(&task, &report)
	}
	if err != nil {
		text := err.Error()
		report.Error = &text
	}
	line, err := json.Marshal(report)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(line))
}

func run(task *Task, report *Report) error {
	pem, err := os.ReadFile(task.CA)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("no certificate in " + task.CA)
	}
	tlsConfig := &tls.Config{
		ServerName:         task.Host,
		RootCAs:            roots,
		NextProtos:         []string{http3.NextProtoH3},
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
	quicConfig := &quic.Config{TokenStore: quic.NewLRUTokenStore(8, 8)}
	if task.UnknownVersion {
		quicConfig.Versions = []quic.Version{quic.Version2, quic.Version1}
	}
	for index, paths := range task.Rounds {
		round, err := connectAndFetch(task, tlsConfig, quicConfig, task.EarlyData && index > 0, paths)
		if err != nil {
			return err
		}
		report.Rounds = append(report.Rounds, *round)
	}
	return nil
}

func connectAndFetch(task *Task, tlsConfig *tls.Config, quicConfig *quic.Config, early bool, paths []string) (*Round, error) {
	ctx := context.Background()
	remote := net.JoinHostPort(task.Address, strconv.Itoa(task.Port))
	dial := quic.DialAddr
	if early {
		dial = quic.DialAddrEarly
	}
	connection, err := dial(ctx, remote, tlsConfig, quicConfig)
	if err != nil {
		return nil, err
	}
	client := (&http3.Transport{DisableCompression: true}).NewClientConn(connection)
	type outcome struct {
		response *Response
		err      error
	}
	outcomes := make(chan outcome, len(paths))
	for _, path := range paths {
		go func() {
			response, err := fetch(task, client, early, path)
			outcomes <- outcome{response, err}
		}()
	}
	round := &Round{Responses: []Response{}}
	for range paths {
		got := <-outcomes
		if got.err != nil {
			return nil, got.err
		}
		round.Responses = append(round.Responses, *got.response)
	}
	state := connection.ConnectionState()
	round.ALPN = state.TLS.NegotiatedProtocol
	round.Resumed = state.TLS.DidResume
	round.EarlyData = state.Used0RTT
	time.Sleep(time.Duration(task.LingerMS) * time.Millisecond)
	return round, connection.CloseWithError(0x100, "done")
}

func fetch(task *Task, client *http3.ClientConn, early bool, path string) (*Response, error) {
	url := "https://" + net.JoinHostPort(task.Host, strconv.Itoa(task.Port)) + path
	method := http.MethodGet
	if early {
		// Only this method name makes quic-go send a request before the handshake is complete.
		method = http3.MethodGet0RTT
	}
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	hash := sha256.New()
	length, err := io.Copy(hash, response.Body)
	if err != nil {
		return nil, err
	}
	return &Response{path, response.StatusCode, length, hex.EncodeToString(hash.Sum(nil))}, nil
}
