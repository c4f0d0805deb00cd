variable "cluster_name" {
  description = "Name of the EKS cluster; at most 40 characters, because the names of roles that contain it may have 64"
  type        = string
  validation {
    condition     = can(regex("^[0-9A-Za-z][0-9A-Za-z_-]{0,39}$", var.cluster_name))
    error_message = "The name of the cluster has at most 40 letters, digits, underscores and hyphens."
  }
}

variable "queue_name" {
  description = "Name of the queue of interruption messages, which is the value settings.interruptionQueue; the cluster's name when empty"
  type        = string
  default     = ""
}

variable "oidc_provider" {
  description = "The cluster's OpenID Connect issuer without https://, when the controller gets its role through the annotation of its service account; Pod Identity needs none"
  type        = string
  default     = ""
}

variable "namespace" {
  description = "Namespace of the controller; matters with oidc_provider only"
  type        = string
  default     = "kube-system"
}

variable "service_account" {
  description = "Service account of the controller; matters with oidc_provider only"
  type        = string
  default     = "karpenter"
}

variable "import_commitments" {
  description = "Whether the controller may read the account's Reserved Instances and Savings Plans, for the value settings.importCommitments"
  type        = bool
  default     = false
}

variable "tags" {
  description = "Tags of everything that is made"
  type        = map(string)
  default     = {}
}
