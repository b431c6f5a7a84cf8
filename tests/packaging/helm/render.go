// Renders a Helm chart as `helm template` does, with what a chart of our own needs of it: the values' schema, the functions
// of sprig, and include, tpl, required, fail, toYaml and the like. It has no subcharts, hooks and cluster.
// Debian has the libraries and no Helm (scripts/setup --for dev).
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run render.go CHART RELEASE [VALUES...]
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"github.com/xeipuuv/gojsonschema"
	"sigs.k8s.io/yaml"
)

type object = map[string]interface{}

func main() {
	if len(os.Args) < 3 {
		fail(errors.New("usage: render CHART RELEASE [VALUES...]"))
	}
	if err := render(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func render(folder, release string, files []string) error {
	about, err := readYaml(filepath.Join(folder, "Chart.yaml"))
	if err != nil {
		return err
	}
	values := object{}
	for _, file := range append([]string{filepath.Join(folder, "values.yaml")}, files...) {
		more, err := readYaml(file)
		if err != nil {
			return err
		}
		override(values, more)
	}
	if err := checkSchema(filepath.Join(folder, "values.schema.json"), values); err != nil {
		return err
	}
	// Helm writes the keys of Chart.yaml with a capital letter.
	chart := object{}
	for key, value := range about {
		chart[strings.ToUpper(key[:1])+key[1:]] = value
	}
	name := about["name"].(string)
	root := template.New(name).Option("missingkey=zero")
	root.Funcs(functions(root))
	sources, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	if err != nil {
		return err
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		if _, err := root.New(templateName(name, source)).Parse(string(text)); err != nil {
			return err
		}
	}
	for _, source := range sources {
		if strings.HasPrefix(filepath.Base(source), "_") {
			continue
		}
		full := templateName(name, source)
		text, err := execute(root, full, object{
			"Values": values,
			"Chart":  chart,
			"Release": object{"Name": release, "Namespace": release, "Service": "Helm", "Revision": 1,
				"IsInstall": true, "IsUpgrade": false},
			"Template": object{"Name": full, "BasePath": name + "/templates"},
		})
		if err != nil {
			return err
		}
		if strings.TrimSpace(text) == "" || filepath.Ext(source) != ".yaml" {
			continue // notes are rendered for their errors alone
		}
		fmt.Printf("---\n# Source: %s\n%s\n", full, text)
	}
	return nil
}

func templateName(chart, source string) string {
	return path.Join(chart, "templates", filepath.Base(source))
}

func readYaml(file string) (object, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	values := object{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return values, nil
}

// Maps are merged, everything else is replaced, and null removes a default.
func override(values, more object) {
	for key, value := range more {
		inner, isMap := value.(object)
		outer, wasMap := values[key].(object)
		switch {
		case value == nil:
			delete(values, key)
		case isMap && wasMap:
			override(outer, inner)
		default:
			values[key] = value
		}
	}
}

func checkSchema(file string, values object) error {
	schema, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	result, err := gojsonschema.Validate(gojsonschema.NewBytesLoader(schema), gojsonschema.NewGoLoader(values))
	if err != nil {
		return err
	}
	var problems []string
	for _, problem := range result.Errors() {
		problems = append(problems, problem.String())
	}
	if len(problems) > 0 {
		return errors.New("the values do not fit the schema: " + strings.Join(problems, "; "))
	}
	return nil
}

func execute(root *template.Template, name string, data interface{}) (string, error) {
	var out strings.Builder
	err := root.ExecuteTemplate(&out, name, data)
	return strings.ReplaceAll(out.String(), "<no value>", ""), err
}

func functions(root *template.Template) template.FuncMap {
	all := sprig.TxtFuncMap()
	// Helm takes them away: they would read the machine.
	delete(all, "env")
	delete(all, "expandenv")
	all["include"] = func(name string, data interface{}) (string, error) { return execute(root, name, data) }
	all["tpl"] = func(text string, data interface{}) (string, error) {
		clone, err := root.Clone()
		if err != nil {
			return "", err
		}
		if _, err := clone.New("tpl").Parse(text); err != nil {
			return "", err
		}
		return execute(clone, "tpl", data)
	}
	all["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, errors.New(message)
		}
		return value, nil
	}
	all["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	all["fromYaml"] = func(text string) (object, error) {
		value := object{}
		return value, yaml.Unmarshal([]byte(text), &value)
	}
	all["toJson"] = func(value interface{}) (string, error) {
		text, err := json.Marshal(value)
		return string(text), err
	}
	all["fromJson"] = func(text string) (object, error) {
		value := object{}
		return value, json.Unmarshal([]byte(text), &value)
	}
	all["lookup"] = func(string, string, string, string) object { return object{} }
	return all
}
