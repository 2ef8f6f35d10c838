-- name: CreateCharge :exec
INSERT INTO charges (order_id, cents) VALUES (?, ?);
