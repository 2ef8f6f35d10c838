module github.com/watermill-inbox/inbox/inboxtest

go 1.26.0

require (
	github.com/ThreeDotsLabs/watermill v1.5.3
	github.com/lib/pq v1.12.3
	github.com/watermill-inbox/inbox v0.0.0
	go.uber.org/goleak v1.3.0
	modernc.org/sqlite v1.62.0
)

replace github.com/watermill-inbox/inbox => ../
