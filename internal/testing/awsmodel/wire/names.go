package wire

import (
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Style is how one family of services spells things.
type Style struct {
	request  map[string]string // Go field, or Type.Field, to the name in a request
	response map[string]string // the same for answers
	lower    bool              // the first letter is small in answers
	item     string            // the element that holds a list's members
	flat     bool              // lists and maps have no element of their own: their members repeat the list's name
}

// The styles of the services that are modelled.
var (
	EC2 = Style{request: ec2Request, response: ec2Response, lower: true, item: "item"}
	// IAM and STS
	Query = Style{request: map[string]string{"PolicyDescriptorType.Arn": "arn"},
		response: map[string]string{"PolicyDescriptorType.Arn": "arn"}, item: "member"}
	// SQS, as clients of before 2023 speak it
	Queue = Style{request: queueNames, response: queueNames, flat: true}
	// SSM, SQS and Pricing
	JSON = Style{}
	// EKS
	REST   = Style{lower: true}
	listOf = map[string]string{
		"InferenceAcceleratorInfo.Accelerators":                      "member",
		"LaunchTemplateInstanceNetworkInterfaceSpecification.Groups": "groupId",
		"InstanceNetworkInterfaceSpecification.Groups":               "SecurityGroupId",
	}
)

func (s Style) requestName(owner reflect.Type, field string) string {
	if n, ok := s.request[owner.Name()+"."+field]; ok {
		return n
	}
	if n, ok := s.request[field]; ok {
		return n
	}
	return field
}

func (s Style) responseName(owner reflect.Type, field string) string {
	if n, ok := s.response[owner.Name()+"."+field]; ok {
		return n
	}
	if n, ok := s.response[field]; ok {
		return n
	}
	if s.lower {
		r, size := utf8.DecodeRuneInString(field)
		return string(unicode.ToLower(r)) + field[size:]
	}
	return field
}

func (s Style) itemName(owner reflect.Type, field string) string {
	if n, ok := listOf[owner.Name()+"."+field]; ok && s.lower {
		return n
	}
	return s.item
}

// queueNames are the members of SQS that the older protocol calls by the singular.
var queueNames = map[string]string{
	"AttributeNames": "AttributeName", "MessageAttributeNames": "MessageAttributeName",
	"MessageSystemAttributeNames": "MessageSystemAttributeName",
	"Attributes":                  "Attribute", "MessageAttributes": "MessageAttribute", "Messages": "Message", "QueueUrls": "QueueUrl",
}

// ec2Request lists the request members whose name on the wire is not the field's: nearly all are lists, which EC2 calls
// by the singular.
var ec2Request = singular(`
AllowedInstanceTypes ArchitectureTypes AssociationIds BlockDeviceMappings CapacityReservationIds
CapacityReservationResourceGroupArns CpuManufacturers
ElasticGpuSpecifications ExcludedInstanceTypes Filters FleetIds GroupIds GroupNames ImageIds InstanceGenerations
InstanceIds InstanceTypes Ipv4Prefixes Ipv6Prefixes KeyNames KeyPairIds LaunchTemplateIds LaunchTemplateNames
LicenseSpecifications LocalStorageTypes NetworkInterfaceIds NetworkInterfaces Owners ProductCodes ProductDescriptions
References RegionNames ReservedInstancesIds
ReservationTypes SecondaryInterfaces SecurityGroupIds SecurityGroups SpotInstanceRequestIds SubnetIds
TagSpecifications Tags UserIds UserGroups Values VirtualizationTypes VolumeIds VpcIds ZoneIds ZoneNames AcceleratorManufacturers
AcceleratorNames AcceleratorTypes ElasticInferenceAccelerators`, map[string]string{
	"CreateSecurityGroupInput.Description": "GroupDescription",
	"ExecutableUsers":                      "ExecutableBy",
	"Groups":                               "SecurityGroupId",
	"Resources":                            "ResourceId",
	"Versions":                             "LaunchTemplateVersion",
	"MarketTypes":                          "MarketType",
	"RunInstancesInput.Ipv6Addresses":      "Ipv6Address",
	"CreateCapacityReservationInput.TagSpecifications":                                "TagSpecifications",
	"InstanceSecondaryInterfaceSpecificationRequest.PrivateIpAddresses":               "PrivateIpAddress",
	"LaunchTemplateInstanceSecondaryInterfaceSpecificationRequest.PrivateIpAddresses": "PrivateIpAddress",
})

func singular(plurals string, extra map[string]string) map[string]string {
	for _, p := range strings.Fields(plurals) {
		name := strings.TrimSuffix(p, "s")
		if strings.HasSuffix(p, "Prefixes") {
			name = strings.TrimSuffix(p, "es")
		}
		extra[p] = name
	}
	return extra
}

// ec2Response lists the answer members whose name on the wire is not the field's with a small first letter.
var ec2Response = map[string]string{
	"ActiveInstances":                         "activeInstanceSet",
	"AllocationMetadata":                      "allocationMetadataList",
	"AssociatedSubnets":                       "associatedSubnetSet",
	"Attachments":                             "attachmentSet",
	"AvailabilityZones":                       "availabilityZoneInfo",
	"AcceleratorManufacturers":                "acceleratorManufacturerSet",
	"AcceleratorNames":                        "acceleratorNameSet",
	"AcceleratorTypes":                        "acceleratorTypeSet",
	"AllowedInstanceTypes":                    "allowedInstanceTypeSet",
	"BlockDeviceMappings":                     "blockDeviceMappingSet",
	"CapacityAllocations":                     "capacityAllocationSet",
	"CapacityReservations":                    "capacityReservationSet",
	"CpuManufacturers":                        "cpuManufacturerSet",
	"EbsCards":                                "ebsCardSet",
	"ElasticGpuAssociations":                  "elasticGpuAssociationSet",
	"ElasticGpuSpecifications":                "elasticGpuSpecificationSet",
	"ElasticInferenceAcceleratorAssociations": "elasticInferenceAcceleratorAssociationSet",
	"ElasticInferenceAccelerators":            "elasticInferenceAcceleratorSet",
	"Endpoint":                                "regionEndpoint",
	"Errors":                                  "errorSet",
	"Events":                                  "eventsSet",
	"ExcludedInstanceTypes":                   "excludedInstanceTypeSet",
	"Fleets":                                  "fleetSet",
	"Geography":                               "geographySet",
	"Groups":                                  "groupSet",
	"Images":                                  "imagesSet",
	"ImageWatermarks":                         "imageWatermarkSet",
	"SpotInstanceRequests":                    "spotInstanceRequestSet",
	"SupportedInstanceTypes":                  "supportedInstanceTypeSet",
	"UnsupportedInstanceTypes":                "unsupportedInstanceTypeSet",
	"InterfaceTypes":                          "interfaceTypeSet",
	"InstanceGenerations":                     "instanceGenerationSet",
	"InstanceStatuses":                        "instanceStatusSet",
	"InstanceTypeOfferings":                   "instanceTypeOfferingSet",
	"InstanceTypes":                           "instanceTypeSet",
	"Instances":                               "instancesSet",
	"Ipv4Prefixes":                            "ipv4PrefixSet",
	"Ipv6Addresses":                           "ipv6AddressesSet",
	"Ipv6Prefixes":                            "ipv6PrefixSet",
	"LaunchTemplateVersions":                  "launchTemplateVersionSet",
	"LicenseSpecifications":                   "licenseSet",
	"Licenses":                                "licenseSet",
	"LocalStorageTypes":                       "localStorageTypeSet",
	"NetworkInterfaces":                       "networkInterfaceSet",
	"PlacementGroups":                         "placementGroupSet",
	"PrivateIpAddresses":                      "privateIpAddressesSet",
	"ProductCodeId":                           "productCode",
	"ProductCodeType":                         "type",
	"Public":                                  "isPublic",
	"PublicIpAddress":                         "ipAddress",
	"References":                              "referenceSet",
	"Regions":                                 "regionInfo",
	"ReservationTypes":                        "reservationTypeSet",
	"ReservedInstances":                       "reservedInstancesSet",
	"Reservations":                            "reservationSet",
	"SecondaryInterfaces":                     "secondaryInterfaceSet",
	"SecurityGroupIds":                        "securityGroupIdSet",
	"SecurityGroups":                          "securityGroupSet",
	"SpotPriceHistory":                        "spotPriceHistorySet",
	"StartingInstances":                       "instancesSet",
	"StateTransitionReason":                   "reason",
	"StoppingInstances":                       "instancesSet",
	"SubGeography":                            "subGeographySet",
	"Subnets":                                 "subnetSet",
	"TagSpecifications":                       "tagSpecificationSet",
	"Tags":                                    "tagSet",
	"TerminatingInstances":                    "instancesSet",
	"UserIdGroupPairs":                        "groups",
	"Volumes":                                 "volumeSet",
	"Vpcs":                                    "vpcSet",
	"Workloads":                               "workloadSet",
	"AvailabilityZone.State":                  "zoneState",
	"AvailabilityZone.Messages":               "messageSet",
	"CreateFleetOutput.Instances":             "fleetInstanceSet",
	"FleetData.Instances":                     "fleetInstanceSet",
	"DescribeSecurityGroupsOutput.SecurityGroups":        "securityGroupInfo",
	"Image.BlockDeviceMappings":                          "blockDeviceMapping",
	"Image.OwnerId":                                      "imageOwnerId",
	"Image.State":                                        "imageState",
	"Instance.BlockDeviceMappings":                       "blockDeviceMapping",
	"Instance.PublicDnsName":                             "dnsName",
	"Instance.SecurityGroups":                            "groupSet",
	"Instance.State":                                     "instanceState",
	"InstanceSecondaryInterface.PrivateIpAddresses":      "privateIpAddressSet",
	"SecurityGroup.Description":                          "groupDescription",
	"Volume.State":                                       "status",
	"VolumeAttachment.State":                             "status",
	"LaunchSpecification.BlockDeviceMappings":            "blockDeviceMapping",
	"LaunchSpecification.SecurityGroups":                 "groupSet",
	"InstanceNetworkInterfaceSpecification.Groups":       "SecurityGroupId",
	"InstanceNetworkInterfaceSpecification.Ipv4Prefixes": "Ipv4Prefix",
	"InstanceNetworkInterfaceSpecification.Ipv6Prefixes": "Ipv6Prefix",
	"EbsBlockDevice.AvailabilityZoneId":                  "AvailabilityZoneId",
	"EbsBlockDevice.EbsCardIndex":                        "EbsCardIndex",
	"EbsBlockDevice.VolumeInitializationRate":            "VolumeInitializationRate",
	"EbsBlockDevice.AvailabilityZone":                    "AvailabilityZone",
}
