package main

import (
	"context"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws"
	"karpenter.sh/karpenter/internal/kit/setting"
	"karpenter.sh/karpenter/internal/kit/version"
	"karpenter.sh/karpenter/internal/operator"
)

// provider is a cloud: its settings, and how to reach it once they are read.
type provider struct {
	nodeClasses operator.NodeClasses
	settings    func() []setting.Setting
	validate    func() error
	open        func(ctx context.Context, core operator.Settings, in operator.CloudInput) (*operator.Cloud, error)
}

// awsProvider returns the cloud of this program; see controller in main.go.
func awsProvider() provider {
	s := aws.DefaultSettings()
	return provider{
		nodeClasses: operator.NodeClasses{Group: awsv1.Group, Label: awsv1.LabelNodeClass, AddToScheme: awsv1.AddToScheme},
		settings:    s.List,
		validate:    s.Validate,
		open: func(ctx context.Context, core operator.Settings, in operator.CloudInput) (*operator.Cloud, error) {
			s.ReservedCapacity, s.NodeOverlay, s.Spot.Types = core.Gates.ReservedCapacity, core.Gates.NodeOverlay, core.Scheduling.SpotTypes
			s.Spot.InterruptionCost = core.Scheduling.InterruptionCost
			s.V1Beta1 = core.Older.SupportsV1Beta1()
			p, err := aws.Open(ctx, s, aws.Surroundings{
				REST: in.REST, Client: in.Client, Claims: in.Claims, Nodes: in.Nodes, Metrics: in.Metrics,
				Events: in.Events, Corrected: in.Corrected,
				Version: version.Number(),
			})
			if err != nil {
				return nil, err
			}
			return &operator.Cloud{Provider: p, Labels: awsv1.Labels(), Always: p.Always(), Leader: p.Leader(),
				Gauges: p.Gauges(), Ears: p.Ears()}, nil
		},
	}
}
