-- The shop's views, and the statements that show one of them at work.

-- name: order_search
select o.id, o.status, o.placed_at, json_build_object('id', c.id, 'name', c.name, 'email', c.email) as customer,
       (select json_agg(json_build_object('sku', l.sku, 'product', p.name, 'quantity', l.quantity, 'price', l.price)
                        order by l.line_no)
          from order_lines l left join products p on p.sku = l.sku where l.order_id = o.id) as lines,
       (select sum(l.quantity * l.price) from order_lines l where l.order_id = o.id) as total
  from orders o left join customers c on c.id = o.customer_id

-- name: sales_by_product
select l.sku, count(*) as lines, sum(l.quantity) as sold, sum(l.quantity * l.price) as revenue, max(l.price) as dearest
  from order_lines l group by l.sku

-- name: best_customer
select customer_id, array_agg(id order by id) from orders group by 1 order by count(*) desc, 1 limit 1

-- name: rename_customer
update customers set name = %(name)s where id = %(customer)s

-- name: written
select pg_current_wal_insert_lsn()
