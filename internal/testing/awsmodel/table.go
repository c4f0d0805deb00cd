package awsmodel

// operations is everything that this AWS can do. The members listed with each operation are those of the request that
// the model acts on.
var operations = index([]operation{
	op("ec2", (*call).createFleet, "ClientToken", "SpotOptions", "OnDemandOptions", "ReservedCapacityOptions",
		"LaunchTemplateConfigs", "TargetCapacitySpecification", "Type", "TagSpecifications", "Context"),
	op("ec2", (*call).createLaunchTemplate, "ClientToken", "LaunchTemplateName", "LaunchTemplateData",
		"VersionDescription", "TagSpecifications"),
	op("ec2", (*call).createLaunchTemplateVersion, "ClientToken", "LaunchTemplateName", "LaunchTemplateId",
		"LaunchTemplateData", "VersionDescription"),
	op("ec2", (*call).describeLaunchTemplates, "LaunchTemplateIds", "LaunchTemplateNames", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).describeLaunchTemplateVersions, "LaunchTemplateId", "LaunchTemplateName", "Versions", "MaxResults", "NextToken"),
	op("ec2", (*call).deleteLaunchTemplate, "LaunchTemplateId", "LaunchTemplateName"),
	op("ec2", (*call).runInstances, append([]string{"ClientToken", "MinCount", "MaxCount", "SubnetId",
		"LaunchTemplate", "TagSpecifications"}, launchMembers...)...),
	op("ec2", (*call).describeInstances, "InstanceIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).terminateInstances, "InstanceIds"),
	op("ec2", (*call).stopInstances, "InstanceIds"),
	op("ec2", (*call).startInstances, "InstanceIds"),
	op("ec2", (*call).describeInstanceStatus, "InstanceIds", "Filters", "IncludeAllInstances", "MaxResults", "NextToken"),
	op("ec2", (*call).getConsoleOutput, "InstanceId", "Latest"),
	op("ec2", (*call).rebootInstances, "InstanceIds"),
	op("ec2", (*call).describeInstanceAttribute, "InstanceId", "Attribute"),
	op("ec2", (*call).describeTags, "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).describeFleets, "FleetIds"),
	op("ec2", (*call).copyImage, "ClientToken", "Name", "Description", "SourceImageId", "SourceRegion",
		"CopyImageTags", "TagSpecifications"),
	op("ec2", (*call).deprecateImage, "ImageId", "DeprecateAt"),
	op("ec2", (*call).createSecurityGroup, "GroupName", "Description", "VpcId", "TagSpecifications"),
	op("ec2", (*call).modifySubnetAttribute, "SubnetId", "MapPublicIpOnLaunch"),
	op("ec2", (*call).describeVolumes, "VolumeIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).describeNetworkInterfaces, "NetworkInterfaceIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).describeSpotInstanceRequests, "SpotInstanceRequestIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).createTags, "Resources", "Tags"),
	op("ec2", (*call).deleteTags, "Resources", "Tags"),
	op("ec2", (*call).describeInstanceTypes, "InstanceTypes", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).describeInstanceTypeOfferings, "LocationType", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).describeSpotPriceHistory, "InstanceTypes", "ProductDescriptions", "AvailabilityZone",
		"StartTime", "EndTime", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).describeSubnets, "SubnetIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).describeSecurityGroups, "GroupIds", "GroupNames", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).describeVpcs, "VpcIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).describeAvailabilityZones, "ZoneNames", "ZoneIds", "Filters", "AllAvailabilityZones"),
	op("ec2", (*call).describeRegions, "RegionNames", "AllRegions"),
	op("ec2", (*call).describeImages, "ImageIds", "Owners", "Filters", "IncludeDeprecated", "MaxResults", "NextToken"),
	op("ec2", (*call).describeCapacityReservations, "CapacityReservationIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", (*call).createCapacityReservation, "ClientToken", "InstanceType", "InstancePlatform", "AvailabilityZone", "InstanceCount",
		"EndDate", "EndDateType", "InstanceMatchCriteria", "TagSpecifications"),
	op("ec2", (*call).cancelCapacityReservation, "CapacityReservationId"),
	op("ec2", (*call).describePlacementGroups, "GroupIds", "GroupNames", "Filters"),
	op("ec2", (*call).createPlacementGroup, "GroupName", "Strategy", "PartitionCount", "SpreadLevel", "TagSpecifications"),

	op("iam", (*call).createInstanceProfile, "InstanceProfileName", "Path", "Tags"),
	op("iam", (*call).getInstanceProfile, "InstanceProfileName"),
	op("iam", (*call).listInstanceProfiles, "PathPrefix", "Marker", "MaxItems"),
	op("iam", (*call).listInstanceProfileTags, "InstanceProfileName"),
	op("iam", (*call).tagInstanceProfile, "InstanceProfileName", "Tags"),
	op("iam", (*call).addRole, "InstanceProfileName", "RoleName"),
	op("iam", (*call).removeRole, "InstanceProfileName", "RoleName"),
	op("iam", (*call).deleteInstanceProfile, "InstanceProfileName"),
	op("iam", (*call).getRole, "RoleName"),
	op("iam", (*call).createRole, "Path", "RoleName", "AssumeRolePolicyDocument"),
	op("iam", (*call).listRoles),

	op("sts", (*call).getCallerIdentity),
	op("sts", (*call).assumeRole, "RoleArn", "RoleSessionName", "DurationSeconds"),
	op("sts", (*call).assumeRoleWithWebIdentity, "RoleArn", "RoleSessionName", "WebIdentityToken", "DurationSeconds"),

	op("ssm", (*call).getParameter, "Name", "WithDecryption"),
	op("ssm", (*call).getParameters, "Names", "WithDecryption"),
	op("ssm", (*call).getParametersByPath, "Path", "Recursive", "WithDecryption", "MaxResults", "NextToken"),
	op("ssm", (*call).putParameter, "Name", "Value", "Type", "Overwrite"),

	op("sqs", (*call).getQueueURL, "QueueName"),
	op("sqs", (*call).listQueues, "QueueNamePrefix"),
	op("sqs", (*call).createQueue, "QueueName"),
	op("sqs", (*call).deleteQueue, "QueueUrl"),
	op("sqs", (*call).purgeQueue, "QueueUrl"),
	op("sqs", (*call).sendMessage, "QueueUrl", "MessageBody", "MessageAttributes"),
	op("sqs", (*call).receiveMessage, "QueueUrl", "MaxNumberOfMessages", "VisibilityTimeout", "WaitTimeSeconds",
		"MessageSystemAttributeNames", "AttributeNames", "MessageAttributeNames"),
	op("sqs", (*call).deleteMessage, "QueueUrl", "ReceiptHandle"),
	op("sqs", (*call).getQueueAttributes, "QueueUrl", "AttributeNames"),

	op("pricing", (*call).getProducts, "ServiceCode", "Filters", "FormatVersion", "MaxResults", "NextToken"),

	op("eks", (*call).describeCluster, "Name"),
	op("eks", (*call).listClusters),
	op("eks", (*call).describeAccessEntry, "ClusterName", "PrincipalArn"),
	op("eks", (*call).listPodIdentityAssociations, "ClusterName", "Namespace", "ServiceAccount"),

	op("arc-zonal-shift", (*call).getManagedResource, "ResourceIdentifier"),

	op("servicequotas", (*call).getServiceQuota, "ServiceCode", "QuotaCode"),
})

func index(list []operation) map[string]*operation {
	out := map[string]*operation{}
	for i := range list {
		out[list[i].String()] = &list[i]
	}
	return out
}
