package ec2api

import (
	"context"
	"errors"
	"net/http"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// A Call is one call of AWS, or one attempt of it, that has ended.
type Call struct {
	Service, Operation string
	Status             int    // of the HTTP answer; 0 when there was none
	Code               string // of AWS's error; "" when there was none
	Took               time.Duration
	Retries            int // of a whole call
}

// An Observer receives each call, and each attempt of it. A nil field receives none.
type Observer struct {
	Call, Attempt func(Call)
}

type attemptsKey struct{}

// An attempts counts the attempts of one call.
type attempts struct {
	n     int
	doubt bool // one of them may have had its effect
}

// middlewares adds the two middlewares that observe a client's calls and their attempts. The outer one also turns a
// throttled call of which an attempt may have had its effect into a doubtError.
func (o Observer) middlewares(stack *middleware.Stack) error {
	whole := middleware.InitializeMiddlewareFunc("ObserveCall",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
			middleware.InitializeOutput, middleware.Metadata, error,
		) {
			begun, made := time.Now(), &attempts{}
			out, metadata, err := next.HandleInitialize(context.WithValue(ctx, attemptsKey{}, made), in)
			if o.Call != nil {
				o.Call(call(ctx, err, begun, max(0, made.n-1)))
			}
			if made.doubt && IsThrottled(err) {
				err = &doubtError{err}
			}
			return out, metadata, err
		})
	attempt := middleware.FinalizeMiddlewareFunc("ObserveAttempt",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
			middleware.FinalizeOutput, middleware.Metadata, error,
		) {
			begun := time.Now()
			out, metadata, err := next.HandleFinalize(ctx, in)
			if made, ok := ctx.Value(attemptsKey{}).(*attempts); ok {
				made.n++
				made.doubt = made.doubt || mayHaveEffect(err)
			}
			if o.Attempt != nil {
				o.Attempt(call(ctx, err, begun, 0))
			}
			return out, metadata, err
		})
	// Outside of everything, but inside of what names the operation.
	if err := stack.Initialize.Add(whole, middleware.After); err != nil {
		return err
	}
	return stack.Finalize.Insert(attempt, "Retry", middleware.After)
}

// call describes a call or attempt that ended.
func call(ctx context.Context, err error, begun time.Time, retries int) Call {
	c := Call{
		Service: awsmiddleware.GetServiceID(ctx), Operation: awsmiddleware.GetOperationName(ctx),
		Took: time.Since(begun), Retries: retries,
	}
	var refused smithy.APIError
	if errors.As(err, &refused) {
		c.Code = refused.ErrorCode()
	}
	var response *smithyhttp.ResponseError
	switch {
	case err == nil:
		c.Status = http.StatusOK
	case errors.As(err, &response):
		c.Status = response.HTTPStatusCode()
	}
	return c
}
