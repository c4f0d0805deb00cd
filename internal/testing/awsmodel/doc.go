// Package awsmodel is a working AWS for tests and for the local cluster: EC2, IAM, STS, SSM, SQS, Pricing and EKS over
// HTTP, in the wire protocols that the SDKs and the aws CLI speak, with real EC2 data and state in memory.
//
// It promises that what works against it works for the same reason as on AWS: requests are validated, a client token makes
// a call idempotent, a launch can run out of capacity, machines pass through EC2's states, and a machine joins the cluster
// only if its user data would have made a real one join (package boot). It keeps EC2's rate limits and
// enforces IAM policies where told to. A parameter that the model does not act on is refused, never ignored.
//
// Faults are switches (Faults): dry capacity pools, throttling, latency, answers lost after the act, describe calls that
// lag behind, spot interruptions, dead zones, injected errors. They are set from Go, or over HTTP under /_model/.
//
// What it does not do: it verifies no signatures (the access key id alone says who calls), and it carries no data plane.
//
// Time is the time of package time; inside a synctest bubble, use AWSConfig, whose client needs no network.
package awsmodel
