package inventory

import _ "embed" // the schema

// Schema is the JSON Schema of fleet.yaml, for editors. It holds every key that Parse
// knows, but for the names of the flags below settings; Parse checks more.
//
//go:embed fleet.schema.json
var Schema []byte
