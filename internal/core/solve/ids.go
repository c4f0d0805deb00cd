package solve

import "karpenter.sh/karpenter/internal/core/problem"

const noTemplate = problem.TemplateID(-1)
