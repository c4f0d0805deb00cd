package awsmodel

// operations is everything that this AWS can do. The members listed with each operation are those of the request that
// the model acts on.
var operations = index([]operation{
	op("ec2", createFleet, "ClientToken", "SpotOptions", "OnDemandOptions", "ReservedCapacityOptions",
		"LaunchTemplateConfigs", "TargetCapacitySpecification", "Type", "TagSpecifications", "Context"),
	op("ec2", createLaunchTemplate, "ClientToken", "LaunchTemplateName", "LaunchTemplateData",
		"VersionDescription", "TagSpecifications"),
	op("ec2", createLaunchTemplateVersion, "ClientToken", "LaunchTemplateName", "LaunchTemplateId",
		"LaunchTemplateData", "VersionDescription"),
	op("ec2", describeLaunchTemplates, "LaunchTemplateIds", "LaunchTemplateNames", "Filters", "MaxResults", "NextToken"),
	op("ec2", describeLaunchTemplateVersions, "LaunchTemplateId", "LaunchTemplateName", "Versions", "MaxResults", "NextToken"),
	op("ec2", deleteLaunchTemplate, "LaunchTemplateId", "LaunchTemplateName"),
	op("ec2", (*call).runInstances, append([]string{"ClientToken", "MinCount", "MaxCount", "SubnetId",
		"LaunchTemplate", "TagSpecifications"}, launchMembers...)...),
	op("ec2", describeInstances, "InstanceIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", terminateInstances, "InstanceIds"),
	op("ec2", stopInstances, "InstanceIds"),
	op("ec2", startInstances, "InstanceIds"),
	op("ec2", describeInstanceStatus, "InstanceIds", "Filters", "IncludeAllInstances", "MaxResults", "NextToken"),
	op("ec2", getConsoleOutput, "InstanceId", "Latest"),
	op("ec2", rebootInstances, "InstanceIds"),
	op("ec2", describeInstanceAttribute, "InstanceId", "Attribute"),
	op("ec2", describeTags, "Filters", "MaxResults", "NextToken"),
	op("ec2", describeFleets, "FleetIds"),
	op("ec2", copyImage, "ClientToken", "Name", "Description", "SourceImageId", "SourceRegion",
		"CopyImageTags", "TagSpecifications"),
	op("ec2", deprecateImage, "ImageId", "DeprecateAt"),
	op("ec2", createSecurityGroup, "GroupName", "Description", "VpcId", "TagSpecifications"),
	op("ec2", modifySubnetAttribute, "SubnetId", "MapPublicIpOnLaunch"),
	op("ec2", describeVolumes, "VolumeIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", describeNetworkInterfaces, "NetworkInterfaceIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", describeSpotInstanceRequests, "SpotInstanceRequestIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", createTags, "Resources", "Tags"),
	op("ec2", deleteTags, "Resources", "Tags"),
	op("ec2", describeInstanceTypes, "InstanceTypes", "Filters", "MaxResults", "NextToken"),
	op("ec2", describeInstanceTypeOfferings, "LocationType", "Filters", "MaxResults", "NextToken"),
	op("ec2", describeSpotPriceHistory, "InstanceTypes", "ProductDescriptions", "AvailabilityZone",
		"StartTime", "EndTime", "Filters", "MaxResults", "NextToken"),
	op("ec2", describeSubnets, "SubnetIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", describeSecurityGroups, "GroupIds", "GroupNames", "Filters", "MaxResults", "NextToken"),
	op("ec2", describeVpcs, "VpcIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", describeAvailabilityZones, "ZoneNames", "ZoneIds", "Filters", "AllAvailabilityZones"),
	op("ec2", describeRegions, "RegionNames", "AllRegions"),
	op("ec2", describeImages, "ImageIds", "Owners", "Filters", "IncludeDeprecated", "MaxResults", "NextToken"),
	op("ec2", describeCapacityReservations, "CapacityReservationIds", "Filters", "MaxResults", "NextToken"),
	op("ec2", createCapacityReservation, "ClientToken", "InstanceType", "InstancePlatform", "AvailabilityZone", "InstanceCount",
		"EndDate", "EndDateType", "InstanceMatchCriteria", "TagSpecifications"),
	op("ec2", cancelCapacityReservation, "CapacityReservationId"),
	op("ec2", describeReservedInstances, "ReservedInstancesIds", "Filters"),
	op("ec2", describePlacementGroups, "GroupIds", "GroupNames", "Filters"),
	op("ec2", createPlacementGroup, "GroupName", "Strategy", "PartitionCount", "SpreadLevel", "TagSpecifications"),

	op("iam", createInstanceProfile, "InstanceProfileName", "Path", "Tags"),
	op("iam", getInstanceProfile, "InstanceProfileName"),
	op("iam", listInstanceProfiles, "PathPrefix", "Marker", "MaxItems"),
	op("iam", listInstanceProfileTags, "InstanceProfileName"),
	op("iam", tagInstanceProfile, "InstanceProfileName", "Tags"),
	op("iam", addRole, "InstanceProfileName", "RoleName"),
	op("iam", removeRole, "InstanceProfileName", "RoleName"),
	op("iam", deleteInstanceProfile, "InstanceProfileName"),
	op("iam", getRole, "RoleName"),
	op("iam", createRole, "Path", "RoleName", "AssumeRolePolicyDocument"),
	op("iam", listRoles),
	op("iam", simulatePrincipalPolicy, "PolicySourceArn", "ActionNames", "ResourceArns", "ContextEntries"),

	op("sts", getCallerIdentity),
	op("sts", assumeRole, "RoleArn", "RoleSessionName", "DurationSeconds"),
	op("sts", assumeRoleWithWebIdentity, "RoleArn", "RoleSessionName", "WebIdentityToken", "DurationSeconds"),

	op("ssm", getParameter, "Name", "WithDecryption"),
	op("ssm", getParameters, "Names", "WithDecryption"),
	op("ssm", getParametersByPath, "Path", "Recursive", "WithDecryption", "MaxResults", "NextToken"),
	op("ssm", putParameter, "Name", "Value", "Type", "Overwrite"),

	op("sqs", getQueueURL, "QueueName"),
	op("sqs", listQueues, "QueueNamePrefix"),
	op("sqs", createQueue, "QueueName"),
	op("sqs", deleteQueue, "QueueUrl"),
	op("sqs", purgeQueue, "QueueUrl"),
	op("sqs", sendMessage, "QueueUrl", "MessageBody", "MessageAttributes"),
	op("sqs", receiveMessage, "QueueUrl", "MaxNumberOfMessages", "VisibilityTimeout", "WaitTimeSeconds",
		"MessageSystemAttributeNames", "AttributeNames", "MessageAttributeNames"),
	op("sqs", deleteMessage, "QueueUrl", "ReceiptHandle"),
	op("sqs", getQueueAttributes, "QueueUrl", "AttributeNames"),

	op("pricing", getProducts, "ServiceCode", "Filters", "FormatVersion", "MaxResults", "NextToken"),

	op("eks", describeCluster, "Name"),
	op("eks", listClusters),
	op("eks", describeAccessEntry, "ClusterName", "PrincipalArn"),
	op("eks", listPodIdentityAssociations, "ClusterName", "Namespace", "ServiceAccount"),

	op("arc-zonal-shift", getManagedResource, "ResourceIdentifier"),

	op("savingsplans", describeSavingsPlans, "SavingsPlanIds", "States", "MaxResults", "NextToken"),
	op("savingsplans", describeSavingsPlanRates, "SavingsPlanId", "Filters", "MaxResults", "NextToken"),

	op("cloudformation", createChangeSet, "StackName", "ChangeSetName", "ChangeSetType", "TemplateBody", "Parameters",
		"Capabilities", "Description"),
	op("cloudformation", describeChangeSet, "StackName", "ChangeSetName"),
	op("cloudformation", executeChangeSet, "StackName", "ChangeSetName", "DisableRollback"),
	op("cloudformation", describeStacks, "StackName", "NextToken"),
	op("cloudformation", deleteStack, "StackName", "ClientRequestToken"),

	op("servicequotas", getServiceQuota, "ServiceCode", "QuotaCode"),
})

func index(list []operation) map[string]*operation {
	out := map[string]*operation{}
	for i := range list {
		out[list[i].String()] = &list[i]
	}
	return out
}
