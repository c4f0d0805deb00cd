// Package generations turns objects of one API version into another: NodePool, NodeClaim and EC2NodeClass between v1beta1 and v1.
//
// It works on objects as they are read from JSON and moves values without looking into them, so that every spelling of a duration or a
// quantity stays as written, and an object that breaks a rule is turned as well as an object that keeps them all.
//
// Nothing is lost, in neither direction: what the other version has no place for is remembered in an annotation, together with what
// the other version says instead. It is put back when the object returns, unless the user has changed it meanwhile: then the
// change counts. The functions do no I/O and modify no argument.
package generations
