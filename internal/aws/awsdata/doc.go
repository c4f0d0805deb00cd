// Package awsdata holds public facts about Amazon EC2, embedded and compressed: the instance types, the zones that offer
// them, on-demand prices and branch-interface counts.
//
// They serve where no account can be asked: the offline catalogue of the CLI and the benches, the model of AWS, and the
// provider's fallback prices. The provider itself asks EC2 and needs only Price, Branches and the InstanceType shape from
// here. Everything returned is shared and must not be changed. The files are rebuilt from a real account by the generator
// in awsdata/gen.
package awsdata

//go:generate go run ./gen -out .
