// Package rollout decides how drifted nodes of a NodePool with a RolloutPolicy are replaced: in steps of new machines, each watched for a
// while, and not any further when the new machines do harm.
//
// A rollout of a pool begins when a node of it drifts, and when pool or class get a new spec or image meanwhile it begins anew. New
// machines are the claims of the pool that were created since and have not drifted, whatever they were created for. A step has been taken
// when there are so many of them, and has passed when all of them were ready, its bake time is over and the gates let it. Where no node is
// left to be replaced, the rollout is over. All of that is read from the cluster; the status of the policy has the times and the number of
// steps that have passed. So another leader goes on where the last one stopped.
//
// # The state that passed last
//
// With onFailure LastGood new machines of a stopped pool start as those of the last rollout that passed. For each pool the status of the
// policy has one entry, and each step of this table is one write of it:
//
//	no rollout  -> rollout      a node drifted                            since
//	rollout     -> rollout      step taken, watched, passed               bakingSince, step
//	rollout     -> no rollout   no old node is left, and watched          lastGood = what the watched machines are made from
//	any         -> stopped      a gate of the policy trips                tripped
//	stopped     -> as before    a user resumed the pool                   judgedSince
//	any         -> anew         pool or class have a new spec             all but lastGood is forgotten
//
// Only the third write sets lastGood, and it ends the rollout too. So a crash comes before it, and the next leader judges the machines
// again, or after it. A gate that trips at the same look comes first. Why a bad state is not remembered as good:
//
//   - The template is that of the snapshot in which machines were judged, and its revision is that of the entry. The hash on each machine
//     that counts is that of this template.
//   - The images are those that machines run, not those that the class has found meanwhile.
//   - A machine counts only if it was there when the last watch began, and if it is judged: not if it was there when the pool was resumed.
//     Where none counts, what was remembered before stays.
//
// While a pool is stopped, package catalog puts the remembered template into it before anything is planned (Restore). Its claims carry the
// images in an annotation. They count as new to nothing: they do not drift while the stop lasts, and are old machines after it. What a
// status may have forged decides little: see Restore for templates; images must be among those that the node class has found.
//
// # Blame
//
// A machine counts as failed by the rule of package breaker: it did not get ready in time, or was ready and has not been for 45 seconds. A
// pod on a new machine counts as failing if
//
//   - it has restarted at least twice, and more than twice as often as any pod of its template elsewhere or before it moved; or
//   - it is late, and has been seen not ready for 45 seconds. A pod is late after readyWithin, or after twice the time that the fastest
//     pod of its template took, if that is more and less than an hour.
//
// A template is an owner and a revision, so a new release is another template. A failing pod is blamed on the machines only by comparison:
//
//   - Where pods of the template are on other machines and have been decided about, the same share of the pods on new machines is
//     expected to fail. What is more than that counts. Elsewhere a pod does well when it has been ready for readyWithin, and ill when it is
//     late.
//   - Where there are none, as many failures count as pods moved that had been ready for readyWithin.
//   - Where there are neither, nothing is known about the template: its pods count neither way.
//
// So a release that fails everywhere is not blamed on machines, and a release that fails on new machines alone is. A gate trips when more
// than one in ten of what was judged failed, so one machine or pod is enough among the first nine.
//
// Errors of the rule. In error stops: a workload whose pods all moved in the same minutes while what they depend on failed; a pod that
// takes longer to start than readyWithin and of which no other one is known. Not seen: a template all of whose pods moved before a new
// leader began to look; a release whose pods run on new machines only; a fault that shows later than the bake times.
//
// # Evidence
//
// There is evidence of a bad image from the moment at which one of its machines, or a pod that fails because of its machine, has failed by
// this rule: at the end of readyWithin if it is still there and not ready, at its second restart, or when a machine that was ready is not
// any more. A stop has to come within five minutes of it. A pod that a release of its workload removes before the end of readyWithin is no
// evidence: readyWithin is the time that the policy gives to good pods, and what took its place is another template. So a bad canary whose
// only failing pod is released away in these minutes passes, and the fault is found by the wave. TestRollouts in internal/control/rollout
// counts by this definition, and with 1,000 bad images two or so are found that late.
package rollout
