output "controller_role_arn" {
  description = "What the controller runs as"
  value       = aws_iam_role.controller.arn
}

output "node_role_name" {
  description = "Name of the nodes' role, for spec.role of an EC2NodeClass"
  value       = aws_iam_role.node.name
}

output "interruption_queue" {
  description = "For the value settings.interruptionQueue"
  value       = aws_sqs_queue.interruption.name
}
