# What Karpenter needs in an AWS account for one cluster. karpenter-cloudformation.yaml makes the same, under the same names.
# The files in policies/ are made by make gen.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

data "aws_partition" "here" {}
data "aws_region" "here" {}
data "aws_caller_identity" "here" {}

locals {
  queue_name = var.queue_name == "" ? var.cluster_name : var.queue_name

  # What the files in policies/ leave open.
  names = {
    Partition      = data.aws_partition.here.partition
    DNSSuffix      = data.aws_partition.here.dns_suffix
    Region         = data.aws_region.here.name
    AccountID      = data.aws_caller_identity.here.account_id
    ClusterName    = var.cluster_name
    NodeRole       = "KarpenterNodeRole-${var.cluster_name}"
    Queue          = local.queue_name
    OIDCProvider   = var.oidc_provider
    Namespace      = var.namespace
    ServiceAccount = var.service_account
  }

  controller_policies = merge(var.import_commitments ? { Commitments = "commitments" } : {}, {
    NodeLifecycle     = "node-lifecycle"
    IAMIntegration    = "iam-integration"
    EKSIntegration    = "eks-integration"
    Interruption      = "interruption"
    ResourceDiscovery = "resource-discovery"
    ZonalShift        = "zonal-shift"
  })

  rules = jsondecode(file("${path.module}/policies/rules.json"))
}

resource "aws_iam_role" "node" {
  name               = local.names.NodeRole
  path               = "/"
  assume_role_policy = templatefile("${path.module}/policies/node-trust.json", local.names)
  tags               = var.tags
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each   = toset(["AmazonEKS_CNI_Policy", "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore"])
  role       = aws_iam_role.node.name
  policy_arn = "arn:${local.names.Partition}:iam::aws:policy/${each.value}"
}

resource "aws_iam_instance_profile" "node" {
  name = "KarpenterNodeInstanceProfile-${var.cluster_name}"
  path = "/"
  role = aws_iam_role.node.name
  tags = var.tags
}

resource "aws_iam_role" "controller" {
  name               = "KarpenterControllerRole-${var.cluster_name}"
  path               = "/"
  assume_role_policy = templatefile("${path.module}/policies/${var.oidc_provider == "" ? "controller-trust" : "controller-trust-web-identity"}.json", local.names)
  tags               = var.tags
}

resource "aws_iam_policy" "controller" {
  for_each = local.controller_policies
  name     = "KarpenterController${each.key}Policy-${var.cluster_name}"
  policy   = templatefile("${path.module}/policies/${each.value}.json", local.names)
  tags     = var.tags
}

resource "aws_iam_role_policy_attachment" "controller" {
  for_each   = aws_iam_policy.controller
  role       = aws_iam_role.controller.name
  policy_arn = each.value.arn
}

resource "aws_sqs_queue" "interruption" {
  name                      = local.queue_name
  message_retention_seconds = 300
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

resource "aws_sqs_queue_policy" "interruption" {
  queue_url = aws_sqs_queue.interruption.url
  policy    = templatefile("${path.module}/policies/queue.json", local.names)
}

resource "aws_cloudwatch_event_rule" "interruption" {
  for_each      = local.rules
  event_pattern = jsonencode(each.value)
  tags          = var.tags
  depends_on    = [aws_sqs_queue_policy.interruption]
}

resource "aws_cloudwatch_event_target" "interruption" {
  for_each  = aws_cloudwatch_event_rule.interruption
  rule      = each.value.name
  target_id = "KarpenterInterruptionQueueTarget"
  arn       = aws_sqs_queue.interruption.arn
}
