package sentence

import "karpenter.sh/karpenter/internal/core/surge"

// Surge returns the words of a verdict, "" where nothing is known.
func Surge(v surge.Verdict) string {
	switch v {
	case surge.Possible:
		return "it moves by restart"
	case surge.NoConsent:
		return "it can move by restart: add the annotation karpenter.sh/surge: restart to its pod template, namespace or NodePool"
	case surge.NoDeployment:
		return "it belongs to no Deployment, so it cannot move by restart"
	case surge.NoSurge:
		return "its Deployment starts no successor first (Recreate, maxSurge 0, or maxUnavailable of all), so it cannot move by restart"
	case surge.Exclusive:
		return "it uses a volume that only one node may mount, so it cannot move by restart"
	case surge.Paused:
		return "its Deployment is paused, so it cannot move by restart now"
	case surge.UnderWay:
		return "its Deployment is being rolled out, and it can move by restart afterwards"
	case surge.TooSoon:
		return "its Deployment was restarted less than an hour ago, and it can move by restart after that"
	case surge.Reverted:
		return "another program took the last restart of its Deployment back, so it is not restarted again for a day"
	}
	return ""
}
