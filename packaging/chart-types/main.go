// Decodes the manifests on stdin into the types of the Kubernetes API, in which unknown keys and wrong types are errors,
// and writes the files of their ConfigMaps into a folder.
//
//	helm template … | charttypes FOLDER
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

func check(manifest []byte, folder string) (string, error) {
	var head struct {
		Kind     string
		Metadata struct{ Name string }
	}
	if err := strict.Unmarshal(manifest, &head); err != nil {
		return "", err
	}
	kinds := map[string]any{
		"ConfigMap":           &core.ConfigMap{},
		"Service":             &core.Service{},
		"StatefulSet":         &apps.StatefulSet{},
		"PodDisruptionBudget": &policy.PodDisruptionBudget{},
	}
	name := head.Kind + "/" + head.Metadata.Name
	if head.Kind == "PodMonitor" {
		return name + ": of another project, not decoded", nil
	}
	object, known := kinds[head.Kind]
	if !known {
		return name, fmt.Errorf("%s: unknown kind", name)
	}
	if err := strict.UnmarshalStrict(manifest, object); err != nil {
		return name, fmt.Errorf("%s: %w", name, err)
	}
	if files, ok := object.(*core.ConfigMap); ok {
		for file, text := range files.Data {
			if err := os.WriteFile(filepath.Join(folder, filepath.Base(file)), []byte(text), 0o600); err != nil {
				return name, err
			}
		}
	}
	return name + ": ok", nil
}

func main() {
	reader := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		manifest, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		line := ""
		if err == nil {
			line, err = check(manifest, os.Args[1])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(line)
	}
}
